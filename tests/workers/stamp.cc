// A worker to measure how fast a failure propagates. On SIGTERM it writes the monotonic clock, in
// nanoseconds, to DIR/<rank>. With "fail" it writes the clock and fails once every DIR/ready.<rank>
// exists. Usage: stamp wait|fail WORLD_SIZE DIR RANK

#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

char path[4096];

void stamp() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  long long nanoseconds = now.tv_sec * 1000000000LL + now.tv_nsec;
  char digits[24];
  int at = 24;
  while (nanoseconds > 0) {
    digits[--at] = static_cast<char>('0' + nanoseconds % 10);
    nanoseconds /= 10;
  }
  const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, digits + at, static_cast<size_t>(24 - at)) < 0) _exit(3);
}

void on_term(int) {
  stamp();
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::string directory = argv[3];
  std::snprintf(path, sizeof path, "%s/%s", argv[3], argv[4]);
  struct sigaction action {};
  action.sa_handler = on_term;
  sigaction(SIGTERM, &action, nullptr);
  close(open((directory + "/ready." + argv[4]).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (std::string(argv[1]) == "wait") {
    for (;;) pause();
  }
  for (int rank = 0; rank < std::atoi(argv[2]); ++rank) {
    while (access((directory + "/ready." + std::to_string(rank)).c_str(), F_OK) != 0) usleep(2000);
  }
  stamp();
  _exit(1);
}

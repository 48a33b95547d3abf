// Grows a family that is hard to get rid of, tells how many it is, and then does what it is told:
//   tree stay | leave | fail     (leave: exit code 0, fail: exit code 3, both at once)
// The family: itself, a plain child, a child in a session of its own that ignores TERM, a stopped
// child, and a daemon (twice forked) with a child, both ignoring all they can. Seven in all, with
// the daemon's brother: six are left when it leaves.
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>

namespace {

void ignore_all() {
  for (int signal = 1; signal < 32; ++signal)
    if (signal != SIGKILL && signal != SIGSTOP && signal != SIGCHLD) std::signal(signal, SIG_IGN);
}

[[noreturn]] void stay() {
  while (true) pause();
}

// The child tells that it is ready by closing `ready`, which the family waits for.
void child(const std::function<void()>& body) {
  if (fork() != 0) return;
  body();
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  int ready[2];
  if (argc != 2 || pipe2(ready, O_CLOEXEC) != 0) return 2;
  const auto be_ready = [&ready] {
    close(ready[0]);
    if (write(ready[1], "r", 1) != 1) _exit(9);
    close(ready[1]);
  };
  child([&] {
    be_ready();
    stay();
  });
  child([&] {
    setsid();
    std::signal(SIGTERM, SIG_IGN);
    be_ready();
    stay();
  });
  child([&] {
    setsid();
    be_ready();
    raise(SIGSTOP);
    stay();
  });
  child([&] {  // gone at once: the daemons' parent
    setsid();
    child([&] {
      ignore_all();
      child([&] {
        setsid();
        be_ready();
        stay();
      });
      be_ready();
      stay();
    });
    child([&] {
      setpgid(0, 0);
      be_ready();
      stay();
    });
  });
  close(ready[1]);
  char letters[8];
  int members = 1;
  while (members < 7) {
    const ssize_t got = read(ready[0], letters, sizeof letters);
    if (got <= 0) return 9;
    members += static_cast<int>(got);
  }
  std::printf("family of %d\n", members);
  std::fflush(stdout);
  if (std::strcmp(argv[1], "leave") == 0) return 0;
  if (std::strcmp(argv[1], "fail") == 0) return 3;
  stay();
}

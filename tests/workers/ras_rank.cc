// ras_rank DIRECTORY MODE: one rank of a job that seems to use NCCL, according to its RAS service.
// Local rank 0 serves RAS at NCCL_RAS_ADDR. All ranks write their pids to the directory and print
// nothing.
//   lags    the last rank stays one operation behind; all sleep
//   spins   the same, but all use CPU time
//   lost    the last rank does not answer; all sleep
//   moves   all ranks advance by one operation with each question, and return after 6 s
// In the round after a restart all return at once.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/support/ras_answers.h"

namespace {

using Clock = std::chrono::steady_clock;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int number(const char* name) { return std::atoi(variable(name).c_str()); }

void write_pid(const std::string& path) {
  std::ofstream(path + ".new") << getpid();
  std::filesystem::rename(path + ".new", path);
}

int pid_in(const std::string& path) {
  int pid = 0;
  std::ifstream(path) >> pid;
  return pid;
}

// The same socket options as NCCL.
int listen_at(const std::string& place) {
  const std::size_t colon = place.rfind(':');
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(place.c_str() + colon + 1)));
  inet_pton(AF_INET, place.substr(0, colon).c_str(), &address.sin_addr);
  if (colon == place.npos ||
      bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return -1;
  return listen(fd, 16) == 0 ? fd : -1;
}

std::string answer(const std::string& directory, std::string_view mode, unsigned long questions) {
  std::vector<drun::test::RasRank> ranks;
  const int size = number("WORLD_SIZE");
  for (int rank = 0; rank < size; ++rank) {
    const bool is_last = rank + 1 == size;
    const bool lags = is_last && (mode == "lags" || mode == "spins");
    ranks.push_back({.host = "127.0.0.1",
                     .pid = pid_in(directory + "/" + std::to_string(rank)),
                     .all_reduces = (mode == "moves" ? questions : 812) - (lags ? 1 : 0),
                     .is_missing = is_last && mode == "lost"});
  }
  return std::string(drun::test::kRasGreeting) + drun::test::ras_json(ranks, false);
}

void serve(int listener, const std::string& text) {
  const int client = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  std::array<char, 1024> question;
  static_cast<void>(recv(client, question.data(), question.size(), 0));
  static_cast<void>(send(client, text.data(), text.size(), MSG_NOSIGNAL));
  close(client);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  if (number("TORCHELASTIC_RESTART_COUNT") > 0) return 0;
  const std::string directory = argv[1];
  const std::string_view mode = argv[2];
  write_pid(directory + "/" + variable("RANK"));
  pollfd listener{.fd = -1, .events = POLLIN, .revents = 0};
  if (number("LOCAL_RANK") == 0) {
    listener.fd = listen_at(variable("NCCL_RAS_ADDR"));
    if (listener.fd < 0) return 3;
  }
  const auto end = Clock::now() + std::chrono::seconds(6);
  for (unsigned long questions = 0; mode != "moves" || Clock::now() < end;) {
    const int wait_ms = mode == "spins" ? 0 : mode == "moves" ? 50 : -1;
    if (poll(&listener, 1, wait_ms) > 0) serve(listener.fd, answer(directory, mode, ++questions));
  }
  return 0;
}

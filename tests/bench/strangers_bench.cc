// Measures how long it takes to form a world during a flood of connections. A separate process
// opens silent connections, and connections that send invalid bytes (random bytes, half a preamble,
// half and whole TLS hellos), while a coordinator and N agents in one process form a world over
// loopback.
//
//   strangers_bench [SILENT PER_SECOND N] [--secret]      default: 10000 1000 100
//
// Prints the time from the first agent's start until the world is complete, and the peak memory of
// the coordinator and the agents together.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/member/client.h"
#include "rendezvous/server/server.h"

namespace drun {
namespace {

using Clock = std::chrono::steady_clock;

struct RankGroup {
  int silent = 10'000;
  int per_second = 1'000;
};

int connected_to(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
    return fd;
  if (fd >= 0) close(fd);
  return -1;
}

std::string nonsense(std::mt19937& random) {
  std::string bytes(random() % 300 + 6, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  switch (random() % 4) {
    case 0:
      return "dru";
    case 1:
      return "\x16\x03\x01\x01";
    case 2:
      bytes.replace(0, 3, "\x16\x03\x01");
      bytes[3] = static_cast<char>((bytes.size() - 5) >> 8U);
      bytes[4] = static_cast<char>(bytes.size() - 5);
      break;
    default:
      break;
  }
  return bytes;
}

// Runs until it is killed. Writes a byte to `ready` once all silent connections are open and half a
// second of the flood has passed.
[[noreturn]] void be_crowd(const RankGroup& crowd, std::uint16_t port, int ready) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::mt19937 random(1);
  for (int i = 0; i < crowd.silent; ++i) connected_to(port);
  std::deque<int> speaking;
  const auto began = Clock::now();
  for (long long sent = 0;; ++sent) {
    if (sent == crowd.per_second / 2 && write(ready, "r", 1) != 1) _exit(1);
    if (crowd.per_second == 0) continue;
    std::this_thread::sleep_until(began +
                                  std::chrono::microseconds(1'000'000) * sent / crowd.per_second);
    const int fd = connected_to(port);
    if (fd < 0) continue;
    const std::string bytes = nonsense(random);
    static_cast<void>(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL));
    speaking.push_back(fd);
    if (speaking.size() < 4'000) continue;
    close(speaking.front());
    speaking.pop_front();
  }
}

struct Counts {
  int worlds = 0;
};

class Agent final : public rendezvous::Client::Listener {
 public:
  Agent(asio::io_context& io, const JoinSpec& spec, Counts& counts)
      : client(io, spec, "bench-host", Log(), *this), counts_(counts) {}
  void on_world(const World&) override { ++counts_.worlds; }
  void on_stop(int, const std::optional<rendezvous::StopNotice>&) override {}
  void on_outcome(const Outcome&) override {
    std::fprintf(stderr, "an agent was refused or lost\n");
    std::exit(1);
  }

  rendezvous::Client client;

 private:
  Counts& counts_;
};

JoinSpec join_spec(int node_rank, int node_count, std::uint16_t port, bool has_secret) {
  JoinSpec spec;
  spec.run_id = "bench";
  spec.node_rank = node_rank;
  spec.node_count = node_count;
  spec.endpoint = {"127.0.0.1", port};
  spec.is_coordinator = node_rank == 0;
  spec.master_addr = "127.0.0.1";
  if (has_secret) spec.secret = *Secret::make("0123456789abcdef", "bench");
  return spec;
}

int measure(const RankGroup& crowd, int node_count, bool has_secret) {
  asio::io_context io(1);
  auto opened = rendezvous::Server::open(io, join_spec(0, node_count, 0, has_secret), Log(), [] {});
  if (!opened) return 1;
  const std::uint16_t port = (*opened)->port();
  int ready[2];
  if (pipe(ready) != 0) return 1;
  const pid_t pid = fork();
  if (pid == 0) be_crowd(crowd, port, ready[1]);
  asio::posix::stream_descriptor line(io, ready[0]);
  bool is_ready = false;
  line.async_wait(asio::posix::stream_descriptor::wait_read,
                  [&is_ready](const error_code&) { is_ready = true; });
  while (!is_ready) io.run_one();
  Counts counts;
  std::vector<std::unique_ptr<Agent>> agents;
  const auto began = Clock::now();
  for (int node = 0; node < node_count; ++node) {
    agents.push_back(
        std::make_unique<Agent>(io, join_spec(node, node_count, port, has_secret), counts));
    agents.back()->client.start();
  }
  const auto limit = Clock::now() + std::chrono::seconds(60);
  while (counts.worlds < node_count && Clock::now() < limit) io.run_one_until(limit);
  const double took = std::chrono::duration<double, std::milli>(Clock::now() - began).count();
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("silent=%d nonsense_per_s=%d secret=%s agents=%d joined=%d ms=%.1f peak_MB=%.1f\n",
              crowd.silent, crowd.per_second, has_secret ? "yes" : "no", node_count, counts.worlds,
              took, static_cast<double>(usage.ru_maxrss) / 1024);
  return counts.worlds == node_count ? 0 : 1;
}

}  // namespace
}  // namespace drun

int main(int argc, char** argv) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  std::vector<int> numbers{10'000, 1'000, 100};
  std::size_t given = 0;
  bool has_secret = false;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--secret")
      has_secret = true;
    else if (given < numbers.size())
      numbers[given++] = std::max(0, std::atoi(argv[i]));
  }
  return drun::measure({numbers[0], numbers[1]}, std::max(1, numbers[2]), has_secret);
}

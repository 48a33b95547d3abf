// Measures the store: the time for many clients to connect at once and complete their first three
// requests (the load at the start of a job), and the requests per second.
//
//   store_bench [clients, 8000] [rounds, 5] [port]
//
// With a port, only the first measurement, of a server that already runs on this port. The server
// is a child process, and the clients run in one epoll loop in this process, so two cores are used.
// Prints one line per measurement; compare the medians.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "rendezvous/store/server.h"
#include "rendezvous/store/wire.h"
#include "tests/support/store_requests.h"

namespace drun {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  std::exit(1);
}

void must(bool holds, const char* what) {
  if (!holds) give_up(what);
}

// Serves until the parent closes the control pipe.
struct Server {
  pid_t pid = 0;
  int control = -1;
  std::uint16_t port = 0;
};

void serve(int control, int report) {
  asio::io_context io{1};
  rendezvous::StoreServerSpec spec;
  spec.listen.loopback_only = true;
  auto server = rendezvous::StoreServer::start(io, spec, Log());
  must(server.has_value(), "listen");
  const std::uint16_t port = (*server)->port();
  must(write(report, &port, sizeof(port)) == sizeof(port), "write");
  asio::posix::stream_descriptor input(io, control);
  char byte = 0;
  asio::async_read(input, asio::buffer(&byte, 1),
                   [&server](error_code, std::size_t) { (*server)->stop(); });
  io.run();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double user = static_cast<double>(usage.ru_utime.tv_sec) +
                      static_cast<double>(usage.ru_utime.tv_usec) / 1e6;
  const double system = static_cast<double>(usage.ru_stime.tv_sec) +
                        static_cast<double>(usage.ru_stime.tv_usec) / 1e6;
  std::printf("  server: user %.3f s, system %.3f s, peak memory %.1f MB\n", user, system,
              static_cast<double>(usage.ru_maxrss) / 1024);
  std::fflush(stdout);
  _exit(0);
}

Server start_server() {
  int control[2];
  int report[2];
  must(pipe(control) == 0 && pipe(report) == 0, "pipe");
  Server server;
  std::fflush(stdout);  // otherwise the child prints the buffer again
  server.pid = fork();
  must(server.pid >= 0, "fork");
  if (server.pid == 0) {
    close(control[1]);
    serve(control[0], report[1]);
  }
  close(control[0]);
  close(report[1]);
  server.control = control[1];
  must(read(report[0], &server.port, sizeof(server.port)) == sizeof(server.port), "server");
  close(report[0]);
  return server;
}

void stop_server(const Server& server) {
  close(server.control);
  waitpid(server.pid, nullptr, 0);
}

// Returns seconds of CPU time, which distinguish a slow program from a busy machine.
double processor_seconds(pid_t pid) {
  clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;
  must(clock_getcpuclockid(pid, &clock) == 0, "clock_getcpuclockid");
  timespec time{};
  must(clock_gettime(clock, &time) == 0, "clock_gettime");
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

// What a client sends, and how many bytes of the answer it awaits before the next step.
struct Step {
  std::string request;
  std::size_t answer_bytes = 0;
};
struct Client {
  int fd = -1;
  bool is_connected = false;
  std::size_t step = 0;
  std::size_t heard_bytes = 0;
};

class RankGroup {
 public:
  RankGroup(std::uint16_t port, std::size_t count) : clients_(count), epoll_(epoll_create1(0)) {
    address_.sin_family = AF_INET;
    address_.sin_port = htons(port);
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  ~RankGroup() {
    for (const Client& client : clients_) close(client.fd);
    close(epoll_);
  }

  // Connects all clients at once; each executes the steps. Returns the seconds until the last
  // client has finished.
  double connect_and_run(const std::vector<std::vector<Step>>& steps) {
    const Clock::time_point start = Clock::now();
    for (std::size_t i = 0; i < clients_.size(); ++i) {
      clients_[i].fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
      must(clients_[i].fd >= 0, "socket");
      const int on = 1;
      setsockopt(clients_[i].fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      const int result =
          connect(clients_[i].fd, reinterpret_cast<sockaddr*>(&address_), sizeof(address_));
      must(result == 0 || errno == EINPROGRESS, "connect");
      epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {.u64 = i}};
      must(epoll_ctl(epoll_, EPOLL_CTL_ADD, clients_[i].fd, &event) == 0, "epoll_ctl");
    }
    run(steps);
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  // Every client executes `step` this many times, each after the answer to the previous one.
  // Returns seconds.
  double repeat(const Step& step, std::size_t times) {
    const Clock::time_point start = Clock::now();
    for (Client& client : clients_) {
      client.step = 0;
      client.heard_bytes = 0;
      say(client, step.request);
    }
    run(std::vector<std::vector<Step>>(1, std::vector<Step>(times, step)));
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

 private:
  void run(const std::vector<std::vector<Step>>& steps) {
    std::size_t left = clients_.size();
    epoll_event events[512];
    while (left > 0) {
      const int count = epoll_wait(epoll_, events, 512, 30'000);
      must(count > 0, "no progress within 30 s");
      for (int i = 0; i < count; ++i) {
        const std::size_t at = events[i].data.u64;
        left -= turn(clients_[at], events[i].events, steps[at % steps.size()]) ? 1 : 0;
      }
    }
  }

  // Returns true if the client has finished.
  bool turn(Client& client, std::uint32_t what, const std::vector<Step>& steps) {
    if (!client.is_connected) {
      client.is_connected = true;
      say(client, steps[0].request);
      return false;
    }
    if ((what & EPOLLIN) == 0) return false;
    char buffer[4096];
    const ssize_t count = recv(client.fd, buffer, sizeof(buffer), 0);
    if (count < 0 && errno == EAGAIN) return false;
    must(count > 0, "a client was closed");
    client.heard_bytes += static_cast<std::size_t>(count);
    if (client.heard_bytes < steps[client.step].answer_bytes) return false;
    client.heard_bytes = 0;
    if (++client.step == steps.size()) return true;
    say(client, steps[client.step].request);
    return false;
  }

  static void say(const Client& client, const std::string& bytes) {
    must(send(client.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
             static_cast<ssize_t>(bytes.size()),
         "send");
  }

  std::vector<Client> clients_;
  int epoll_;
  sockaddr_in address_{};
};

std::string request(const store::Request& one) {
  std::string bytes;
  must(encode(one, Dialect::Current, bytes), "encode");
  return bytes;
}

// VALIDATE and PING; ADD init/; SET of a separate key. SET has no answer, so a CHECK of the key
// follows.
std::vector<std::vector<Step>> first_requests(std::size_t clients) {
  std::vector<std::vector<Step>> all;
  for (std::size_t i = 0; i < clients; ++i) {
    const std::string own = "/default_pg/0//cpu//0/" + std::to_string(i);
    all.push_back({
        {std::string(kValidate) + request(store::Ping{1}), 4},
        {request(store::Add{"init/", 1}), 8},
        {request(store::Set{own, std::string(160, 'v')}) + request(store::Check{{own}}), 1},
    });
  }
  return all;
}

void print_median(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  std::printf("median of %zu: %.3f s\n", seconds.size(), seconds[seconds.size() / 2]);
}

void measure_other(std::size_t clients, int rounds, std::uint16_t port) {
  const auto steps = first_requests(clients);
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) {
    RankGroup crowd(port, clients);
    seconds.push_back(crowd.connect_and_run(steps));
    std::printf("%zu clients, server at %u: %.3f s\n", clients, static_cast<unsigned>(port),
                seconds.back());
  }
  print_median(seconds);
}

void measure(std::size_t clients, int rounds) {
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) {
    const Server server = start_server();
    {
      RankGroup crowd(server.port, clients);
      const auto steps = first_requests(clients);
      const double client_before = processor_seconds(0);
      const double server_before = processor_seconds(server.pid);
      const double start = crowd.connect_and_run(steps);
      seconds.push_back(start);
      std::printf(
          "%zu clients connected and completed their first three requests: %.3f s "
          "(CPU time: server %.3f s, clients %.3f s)\n",
          clients, start, processor_seconds(server.pid) - server_before,
          processor_seconds(0) - client_before);
      if (round == 0) {
        const std::size_t times = 20;
        const double gets = crowd.repeat({request(store::Get{"init/"}), 12}, times);
        std::printf("  GET from all clients, %zu times: %.0f per second\n", times,
                    static_cast<double>(clients * times) / gets);
        const double adds = crowd.repeat({request(store::Add{"n", 1}), 8}, times);
        std::printf("  ADD from all clients: %.0f per second\n",
                    static_cast<double>(clients * times) / adds);
      }
    }
    stop_server(server);
  }
  print_median(seconds);
}

void measure_one() {
  const Server server = start_server();
  {
    RankGroup crowd(server.port, 1);
    crowd.connect_and_run({{{std::string(kValidate) + request(store::Ping{1}), 4}}});
    const std::size_t times = 50'000;
    const double adds = crowd.repeat({request(store::Add{"n", 1}), 8}, times);
    std::printf("one client, ADD: %.0f per second\n", static_cast<double>(times) / adds);
  }
  stop_server(server);
}

}  // namespace
}  // namespace drun

int main(int argc, char** argv) {
  const std::size_t clients = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 8000;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  if (argc > 3) {
    drun::measure_other(clients, rounds, static_cast<std::uint16_t>(std::atoi(argv[3])));
    return 0;
  }
  drun::measure(clients, rounds);
  drun::measure_one();
  return 0;
}

// faulty_rank FAULT RANK STEP [SECONDS]: all ranks make STEP steps, an all_reduce and a broadcast
// each. Then rank RANK has the fault, and the others continue without end:
//   exit, signal-N, exception   it ends
//   bad-alloc, oom              it allocates too much at once, or all there is
//   operation, size, skip       it makes another call, one of another size, or leaves one out
//   sleep, lock, stop           it waits for ever, waits for its own lock, or stops itself
//   spin                        it computes for ever; with SECONDS, calls time out after them
//   cut                         it shuts down its connections
//   refused                     it connects to a port without a listener
// Without a fault, all ranks end after three phases of SECONDS:
//   quiet                       in each of which one rank sleeps
//   busy                        in each of which one rank computes now and then, and prints a line
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "drun/process_group.h"
#include "drun/record.h"

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

void compute_for(Seconds time) {
  const auto end = Clock::now() + time;
  volatile double sum = 0;
  while (Clock::now() < end) sum = sum + 1;
}

void work_for(Seconds time) {
  const auto end = Clock::now() + time;
  while (Clock::now() < end) {
    compute_for(std::chrono::milliseconds(40));
    std::puts("a step");
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::milliseconds(460));
  }
}

void cut_connections() {
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
        (address.ss_family == AF_INET || address.ss_family == AF_INET6))
      shutdown(fd, SHUT_RDWR);
  }
}

void connect_to_nobody() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(1);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    throw std::runtime_error("cannot connect to 127.0.0.1:1: " + std::string(strerror(errno)));
}

void fill_memory() {
  constexpr std::size_t kPart = std::size_t{8} << 20;
  while (true) {
    char* const part = static_cast<char*>(std::malloc(kPart));
    if (part != nullptr) std::memset(part, 1, kPart);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void wait_for_own_lock() {
  std::mutex mutex;
  mutex.lock();
  std::thread other([&mutex] { mutex.lock(); });
  other.join();
}

struct Step {
  std::vector<float> numbers = std::vector<float>(1000);
  std::vector<float> few = std::vector<float>(10);
  void take(drun::ProcessGroup& group) {
    group.all_reduce(numbers);
    group.broadcast(few, 0);
  }
};

void begin_fault(const std::string& fault, drun::ProcessGroup& group, Step& step) {
  if (fault == "exit") std::_Exit(7);
  if (fault.starts_with("signal-")) std::raise(std::atoi(fault.c_str() + 7));
  if (fault == "exception") throw std::runtime_error("the loss is not a number");
  if (fault == "bad-alloc") step.numbers = std::vector<float>(std::size_t{1} << 45);
  if (fault == "oom") fill_memory();
  if (fault == "operation") group.barrier();
  if (fault == "size") step.numbers.resize(500);
  if (fault == "skip") group.broadcast(step.few, 0);
  if (fault == "sleep")
    while (true) pause();
  if (fault == "lock") wait_for_own_lock();
  if (fault == "stop") std::raise(SIGSTOP);
  if (fault == "spin") compute_for(Seconds(3600));
  if (fault == "cut") cut_connections();
  if (fault == "refused") connect_to_nobody();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  return drun::record([argc, argv] {
    const std::string fault = argv[1];
    const int faulty = std::atoi(argv[2]);
    const int steps = std::atoi(argv[3]);
    const Seconds time(argc > 4 ? std::atof(argv[4]) : 0);
    drun::InitOptions options;
    const bool is_healthy = fault == "quiet" || fault == "busy";
    if (argc > 4 && !is_healthy)
      options.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(time);
    if (fault == "cut") options.backend = "gloo";  // shared memory has no connections
    drun::ProcessGroup group = drun::init_process_group(options);
    Step step;
    for (int i = 0; i < steps; ++i) step.take(group);
    for (int phase = 0; is_healthy && phase < 3; ++phase) {
      if (group.rank() == (faulty + phase) % group.size())
        fault == "quiet" ? std::this_thread::sleep_for(time) : work_for(time);
      step.take(group);
    }
    if (is_healthy) return;
    if (group.rank() == faulty) begin_fault(fault, group, step);
    while (true) step.take(group);
  });
}

// Simulates two nodes of two ranks each, with one transport both within and between the nodes, or
// with shared memory within them.
#include <sys/socket.h>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/collective_model.h"
#include "tests/support/machine.h"
#include "tests/support/mesh_ranks.h"
#include "worker_lib/node/node_backend.h"
#include "worker_lib/shm/shm_backend.h"

namespace drun::test {
namespace {

using std::chrono::seconds;

std::unique_ptr<Backend> connect_nodes(const std::string& transport, int rank,
                                       bool is_debug = false, bool overlaps = false) {
  BackendContext context = context_of(rank, 4, is_debug);
  context.node_of = {0, 0, 1, 1};
  const bool is_shared = transport.starts_with("shm+");
  const BackendFactory across = [&](const BackendContext& of_some) {
    return connect(is_shared ? transport.substr(4) : transport, of_some);
  };
  return worker::connect_by_node(context, is_shared ? worker::connect_shm : across, across,
                                 overlaps);
}

std::vector<std::string> over_nodes() {
  std::vector<std::string> names = transports();
  for (const std::string& name : transports()) names.push_back("shm+" + name);
  return names;
}

// Returns the other rank of a message that may be done already, which is `peer` then.
int finish(const std::unique_ptr<Transfer>& message, int peer) {
  return message ? message->finish(in(seconds(40))) : peer;
}

// The connected TCP sockets of this process.
int sockets_with_peer() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
        peer.ss_family == AF_INET)
      ++count;
  }
  return count;
}

}  // namespace

TEST_CASE(
    "collectives over two nodes of two ranks match a model, and messages work between the nodes") {
  const StoreProcess store;
  const std::string transport = GENERATE(from_range(over_nodes()));
  const bool is_debug = GENERATE(false, true);
  const auto ends = run_ranks({.size = 4, .port = store.port()}, [&](int rank, const Say&) {
    const auto backend = connect_nodes(transport, rank, is_debug);
    std::mt19937 random(11);
    for (std::uint32_t sequence = 1; sequence <= 60; ++sequence) {
      const std::size_t most = random() % 10 == 0 ? 100'000 : 500;
      const std::string wrong =
          run_and_check(random_scenario(random, 4, most), rank, [&](const Call& call) {
            backend->run(call, {sequence, in(seconds(20))});
          });
      if (!wrong.empty()) throw std::runtime_error(wrong);
    }
    std::vector<int> data(10, rank);
    if (rank != 1) finish(backend->start_send(data, 1, 5), 1);
    for (int i = 0; rank == 1 && i < 3; ++i) {
      const int from = backend->start_recv(data, std::nullopt, 5)->finish(in(seconds(20)));
      if (data[9] != from) throw std::runtime_error("wrong message");
    }
  });
  check_exited(ends);
}

TEST_CASE("large all_reduces over two nodes are exact, with and without overlap on some ranks") {
  const StoreProcess store;
  const std::string transport = GENERATE("shm+tcp", "shm+gloo", "tcp");
  const auto ends = run_ranks({.size = 4, .port = store.port()}, [&](int rank, const Say&) {
    const auto backend = connect_nodes(transport, rank, false, rank % 3 == 0);
    std::mt19937 random(7);
    for (std::uint32_t sequence = 1; sequence <= 6; ++sequence) {
      Scenario scenario;
      scenario.operation = Operation::AllReduce;
      scenario.size = 4;
      scenario.op = sequence % 2 == 0 ? ReduceOp::Avg : ReduceOp::Sum;
      scenario.count = (std::size_t{1} << 20) + random() % (std::size_t{4} << 20);
      const std::string wrong = run_and_check(scenario, rank, [&](const Call& call) {
        backend->run(call, {sequence, in(seconds(40))});
      });
      if (!wrong.empty()) throw std::runtime_error(wrong);
    }
  });
  check_exited(ends);
}

TEST_CASE("messages between ranks of one node use no connection between nodes") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 4, .port = store.port()}, [&](int rank, const Say&) {
    const auto backend = connect_nodes("shm+tcp", rank);
    backend->run({.operation = Operation::Barrier}, {1, in(seconds(20))});
    const int before = sockets_with_peer();
    for (const std::size_t count : {std::size_t{1}, std::size_t{1} << 18}) {
      std::vector<int> out(count, rank);
      std::vector<int> in_(count, -1);
      const int other = rank ^ 1;
      const auto sent = backend->start_send(out, other, 3);
      const auto received = backend->start_recv(in_, other, 3);
      if (finish(received, other) != other || in_ != std::vector<int>(count, other))
        throw std::runtime_error("wrong message");
      finish(sent, other);
    }
    if (sockets_with_peer() != before) throw std::runtime_error("it made a connection");
    std::vector<float> wrong(2);
    const auto sent = backend->start_send(wrong, rank ^ 1, 4);
    std::vector<int> other_type(2);
    const std::string failure =
        failure_of([&] { backend->start_recv(other_type, rank ^ 1, 4)->finish(in(seconds(20))); });
    if (!failure.starts_with("mismatch peer=" + std::to_string(rank ^ 1)))
      throw std::runtime_error(failure);
  });
  check_exited(ends);
}

TEST_CASE("receives from any rank get each message once, from the own node and from others") {
  const StoreProcess store;
  const std::string transport = GENERATE("shm+tcp", "shm+gloo");
  constexpr int kRounds = 300;
  const auto ends = run_ranks({.size = 4, .port = store.port()}, [&](int rank, const Say&) {
    const auto backend = connect_nodes(transport, rank);
    std::mt19937 random(static_cast<unsigned>(rank));
    if (rank > 0) {
      // Short ones, and some that the receiver must request.
      for (int i = 0; i < kRounds; ++i) {
        std::vector<int> data(i % 10 == 9 ? 20'000 : 3, rank * kRounds + i);
        finish(backend->start_send(data, 0, i % 10 == 9 ? 2 : 1), 0);
        if (random() % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return;
    }
    std::vector<int> last(4, -1);
    std::vector<int> last_long(4, -1);
    const auto check = [&](const std::vector<int>& data, int from, std::vector<int>& before) {
      const int number = data.front() - from * kRounds;
      if (from < 1 || number <= before[static_cast<std::size_t>(from)] || number >= kRounds ||
          data.back() != data.front())
        throw std::runtime_error("wrong message from " + std::to_string(from));
      before[static_cast<std::size_t>(from)] = number;
    };
    for (int i = 0; i < 3 * kRounds / 10; ++i) {
      std::vector<std::vector<int>> data(9, std::vector<int>(3));
      std::vector<std::unique_ptr<Transfer>> receives;
      for (std::vector<int>& each : data)
        receives.push_back(backend->start_recv(each, std::nullopt, 1));
      std::vector<int> large(20'000);
      const auto received = backend->start_recv(large, std::nullopt, 2);
      for (std::size_t k = 0; k < data.size(); ++k)
        check(data[k], receives[k]->finish(in(seconds(40))), last);
      check(large, received->finish(in(seconds(40))), last_long);
    }
    const auto none = backend->start_recv(last, std::nullopt, 1);
    if (!failure_of([&] { none->finish(in(std::chrono::milliseconds(5))); }).starts_with("timeout"))
      throw std::runtime_error("one message too many");
  });
  check_exited(ends);
}

TEST_CASE("a dead rank is reported to the other node when the ranks that detect it abort") {
  const StoreProcess store;
  const std::string transport =
      GENERATE(from_range(transports()));  // shm relies on the group to detect ends
  const int victim = GENERATE(0, 3);
  const bool overlaps = GENERATE(false, true);
  CAPTURE(transport, overlaps);
  const auto ends = run_ranks({.size = 4, .port = store.port()}, [&](int rank, const Say& say) {
    const auto backend = connect_nodes(transport, rank, false, overlaps);
    std::vector<float> data(overlaps ? 5 << 20 : 1 << 18);
    std::uint32_t sequence = 0;
    const auto all_reduce = [&] {
      backend->run({.operation = Operation::AllReduce,
                    .type = DataType::F32,
                    .input = data.data(),
                    .output = data.data(),
                    .count = data.size()},
                   {++sequence, in(seconds(20))});
    };
    const auto began = std::chrono::steady_clock::now();
    if (rank == victim) {
      all_reduce();
      raise(SIGKILL);
    }
    say(failure_of([&] {
      while (true) all_reduce();
    }));
    backend->abort();
    if (std::chrono::steady_clock::now() - began > test::scaled(seconds(10)))
      throw std::runtime_error("late");
  });
  std::string said;
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == victim) continue;
    const RankEnd& end = ends[static_cast<std::size_t>(rank)];
    INFO("rank " << rank << " said " << end.said);
    CHECK(end.exit_code == 0);
    CHECK_THAT(end.said, ContainsSubstring("peer lost peer="));
    said += end.said;
  }
  const std::string name = std::to_string(victim);
  CHECK_THAT(said, ContainsSubstring("peer lost peer=" + name + ": because of rank " + name +
                                     ", among the "));
}

TEST_CASE("a large message between two nodes uses several connections and arrives whole") {
  const StoreProcess store;
  const bool are_apart = GENERATE(true, false);
  constexpr std::size_t kCount = (std::size_t{12} << 20) / sizeof(std::uint32_t) + 3;
  const auto ends = run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say& say) {
    BackendContext context = context_of(rank, 2);
    if (are_apart) context.node_of = {0, 1};
    const auto backend = worker::connect_tcp(context);
    const int other = 1 - rank;
    std::vector<std::uint32_t> out(kCount);
    std::vector<std::uint32_t> in_order(kCount);
    for (int turn = 0; turn < 3; ++turn) {
      for (std::size_t i = 0; i < kCount; ++i)
        out[i] = static_cast<std::uint32_t>(i * 2654435761U + static_cast<unsigned>(rank + turn));
      const auto sent = backend->start_send(out, other, 0);
      const auto received = backend->start_recv(in_order, other, 0);
      received->finish(in(seconds(20)));
      sent->finish(in(seconds(20)));
      for (std::size_t i = 0; i < kCount; ++i)
        if (in_order[i] !=
            static_cast<std::uint32_t>(i * 2654435761U + static_cast<unsigned>(other + turn)))
          throw std::runtime_error("element " + std::to_string(i) + " is wrong");
    }
    say(std::to_string(sockets_with_peer()));
    std::vector<float> sum(40 << 18, 1.0f);  // in pieces that use all lanes
    backend->run({.operation = Operation::AllReduce,
                  .type = DataType::F32,
                  .input = sum.data(),
                  .output = sum.data(),
                  .count = sum.size()},
                 {1, in(seconds(20))});
    if (std::count(sum.begin(), sum.end(), 2.0f) != static_cast<std::ptrdiff_t>(sum.size()))
      throw std::runtime_error("wrong sum");
  });
  check_exited(ends);
  // Of both directions, and one to the store.
  for (const RankEnd& end : ends) CHECK(std::stoi(end.said) == (are_apart ? 2 * 4 : 2) + 1);
}

}  // namespace drun::test

#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/shm_ranks.h"
#include "worker_lib/shm/segment.h"

namespace drun {
namespace {

using std::chrono::milliseconds;
using test::check_exited;
using test::expect;
using test::failure_of;
using test::finish;
using test::run_shm_processes;
using test::Say;
using test::ShmRank;
using test::soon;

using Integers = std::vector<std::int32_t>;

Integers numbers(std::size_t count, int seed) {
  Integers result(count);
  for (std::size_t i = 0; i < count; ++i) {
    result[i] = static_cast<std::int32_t>(i * 7 + static_cast<std::size_t>(seed));
  }
  return result;
}

}  // namespace

TEST_CASE("shared memory: messages of any length arrive whole and in order") {
  const bool reads_peers = GENERATE(true, false);
  INFO("reads from the sender's memory: " << reads_peers);
  check_exited(run_shm_processes(
      2,
      [](ShmRank& self, const Say&) {
        for (const std::size_t count : {0u, 1u, 2047u, 2048u, 2049u, 4096u, 16384u, 3000001u}) {
          for (int turn = 0; turn < 3; ++turn) {
            Integers data = numbers(count, turn);
            if (self.rank() == 0) self.send(data, 1, 4);
            if (self.rank() == 0) continue;
            Integers got(count);
            expect(self.recv(got, 0, 4) == 0, "from rank 0");
            expect(got == data, "the same numbers, of " + std::to_string(count));
          }
        }
      },
      reads_peers));
}

TEST_CASE("shared memory: beyond 32 ranks, rings are small, and messages of any length arrive") {
  using worker::shm::Segment;
  CHECK(Segment::bytes_for(8) < 26'000'000);
  CHECK(Segment::bytes_for(64) < 136'000'000);
  CHECK(Segment::bytes_for(128) < 410'000'000);
  std::atomic<std::size_t> mapped_bytes = 0;
  test::run_shm_threads(64, [&](ShmRank& self) {
    if (self.rank() > 1) return;
    // All ranks of this process share one mapping.
    std::ifstream maps("/proc/self/maps");
    std::size_t bytes = 0;
    for (std::string line; self.rank() == 0 && std::getline(maps, line);) {
      if (line.find("memfd:drun") == line.npos) continue;
      const std::size_t dash = line.find('-');
      bytes += std::stoull(line.substr(dash + 1), nullptr, 16) - std::stoull(line, nullptr, 16);
    }
    if (self.rank() == 0) mapped_bytes = bytes;
    for (const std::size_t count : {1u, 2048u, 2049u, 8192u, 8193u, 300'001u}) {
      const int other = 1 - self.rank();
      Integers data = numbers(count, self.rank());
      Integers got(count);
      const auto sent = self.backend().start_send(data, other, 4);
      expect(self.recv(got, other, 4) == other, "from the other rank");
      finish(sent);
      expect(got == numbers(count, other), "the same numbers, of " + std::to_string(count));
    }
  });
  CHECK(mapped_bytes > 100'000'000);
  CHECK(mapped_bytes < 140'000'000);
}

TEST_CASE("shared memory: a short send completes before its receive is called") {
  check_exited(run_shm_processes(2, [](ShmRank& self, const Say&) {
    const Integers data = numbers(2048, self.rank());
    for (int turn = 0; turn < 4; ++turn) self.send(data, 1 - self.rank(), turn);
    self.barrier();
    for (int turn = 3; turn >= 0; --turn) {  // by tag, not in the order of arrival
      Integers got(2048);
      self.recv(got, 1 - self.rank(), turn);
      expect(got == numbers(2048, 1 - self.rank()), "the other's numbers");
    }
  }));
}

TEST_CASE("shared memory: long messages can be exchanged in both directions at once") {
  const bool reads_peers = GENERATE(true, false);
  INFO("reads from the sender's memory: " << reads_peers);
  check_exited(run_shm_processes(
      2,
      [](ShmRank& self, const Say&) {
        const int other = 1 - self.rank();
        const Integers data = numbers(2000003, self.rank());
        Integers got(data.size());
        const auto sending = self.backend().start_send(data, other, 1);
        const auto receiving = self.backend().start_recv(got, other, 1);
        finish(sending);
        finish(receiving);
        expect(got == numbers(data.size(), other), "the other's numbers");
      },
      reads_peers));
}

TEST_CASE("shared memory: thousands of unreceived messages do not block another tag") {
  check_exited(run_shm_processes(2, [](ShmRank& self, const Say&) {
    constexpr int kMany = 3000;  // 3 MB, far more than the receiver buffers
    const Integers data = numbers(250, 1);
    std::vector<std::unique_ptr<Transfer>> sending;
    if (self.rank() == 0) {
      for (int i = 0; i < kMany; ++i) sending.push_back(self.backend().start_send(data, 1, 1));
      const Integers last = numbers(100000, 5);
      self.send(last, 1, 2);
      for (const auto& each : sending) finish(each);
      return;
    }
    Integers large(100000);
    self.recv(large, 0, 2);
    expect(large == numbers(100000, 5), "the large one");
    for (int i = 0; i < kMany; ++i) {
      Integers got(250);
      self.recv(got, 0, 1);
      expect(got == data, "message " + std::to_string(i));
    }
  }));
}

TEST_CASE("shared memory: recv from any rank gets every rank's messages, each rank's in order") {
  check_exited(run_shm_processes(4, [](ShmRank& self, const Say&) {
    constexpr int kEach = 200;
    if (self.rank() != 0) {
      for (int i = 0; i < kEach; ++i) {
        // Alternating short and long messages must not overtake each other.
        const Integers message = numbers(i % 10 == 0 ? 10'000 : 1, i);
        self.send(message, 0, 9);
      }
      return;
    }
    std::vector<int> seen(4);
    // The ranks send at different speeds, so receive by rank: only then is the length of message i
    // known.
    for (int i = 0; i < 3 * kEach; ++i) {
      const int expected = 1 + i / kEach;
      const int turn = seen[static_cast<std::size_t>(expected)]++;
      Integers got(turn % 10 == 0 ? 10'000 : 1);
      expect(self.recv(got, expected, 9) == expected, "by rank");
      expect(got == numbers(got.size(), turn), "in order");
    }
  }));
  check_exited(run_shm_processes(4, [](ShmRank& self, const Say&) {
    constexpr int kEach = 300;
    if (self.rank() != 0) {
      for (int i = 0; i < kEach; ++i) {
        const Integers message = numbers(3, i);
        self.send(message, 0, 9);
      }
      return;
    }
    std::vector<int> seen(4);
    for (int i = 0; i < 3 * kEach; ++i) {
      Integers got(3);
      const int from = self.recv(got, std::nullopt, 9);
      expect(from >= 1 && from <= 3, "a rank");
      expect(got == numbers(3, seen[static_cast<std::size_t>(from)]++), "in order");
    }
    expect(seen == std::vector<int>{0, kEach, kEach, kEach}, "all of them");
  }));
}

TEST_CASE("shared memory: the receiver reports a message of another size or type") {
  const bool is_long = GENERATE(false, true);
  const std::size_t count = is_long ? 100000 : 10;
  const auto ends = run_shm_processes(2, [&](ShmRank& self, const Say& say) {
    Integers data(count);
    std::vector<float> floats(count);
    if (self.rank() == 0) {
      say(self.failure_of([&] { self.send(data, 1); }));
      return;
    }
    say(self.failure_of([&] { self.recv(floats, 0); }));
  });
  const std::string text = std::to_string(count);
  CHECK_THAT(ends[1].said, ContainsSubstring("mismatch 0: rank 0 sends i32 x " + text +
                                             ", this rank receives f32 x " + text));
  // A long send was still pending; a short one had completed.
  CHECK_THAT(ends[0].said,
             ContainsSubstring(is_long ? "peer lost 1: rank 1 left the group" : "no failure"));
}

TEST_CASE("shared memory: a send that is never received times out") {
  const auto ends = run_shm_processes(2, [](ShmRank& self, const Say& say) {
    Integers data(100000);
    self.barrier();
    if (self.rank() == 1) return;
    say(self.failure_of(
        [&] { self.backend().start_send(data, 1, 3)->finish(soon(milliseconds(100))); }));
  });
  CHECK_THAT(ends[0].said, ContainsSubstring("timeout 1: rank 1 has not received it in time"));
}

TEST_CASE("shared memory: a receiver buffers a limited amount of unreceived messages") {
  const auto ends = run_shm_processes(2, [](ShmRank& self, const Say& say) {
    const Integers data = numbers(1000, 1);
    self.barrier();
    Integers never(1);
    if (self.rank() == 1) {  // buffers everything that arrives
      say(self.failure_of([&] { self.recv(never, 0, 2); }));
      return;
    }
    std::vector<std::unique_ptr<Transfer>> sending;
    for (int i = 0; i < 200; ++i) sending.push_back(self.backend().start_send(data, 1, 1));
    say(self.failure_of([&] { finish(sending[50]); }));
    say(self.failure_of([&] { sending[199]->finish(soon(milliseconds(100))); }));
  });
  CHECK_THAT(ends[0].said, ContainsSubstring("no failure\ntimeout 1: rank 1 has not received it"));
}

// The awaited rank sends only after the message of another one, which this rank must request first:
// a rank that sleeps must wake for the frames of all others.
TEST_CASE("shared memory: a rank that sleeps until one rank sends serves the others as well") {
  check_exited(run_shm_processes(
      4,
      [](ShmRank& self, const Say&) {
        const int before = (self.rank() + 3) % 4;
        for (int turn = 0; turn < 20; ++turn) {
          const Integers long_one = numbers(100'000, turn);
          Integers word(1);
          if (self.rank() == 0) {
            std::vector<Integers> got(4, Integers(long_one.size()));
            std::vector<std::unique_ptr<Transfer>> receiving;
            for (int from = 1; from < 4; ++from)
              receiving.push_back(
                  self.backend().start_recv(got[static_cast<std::size_t>(from)], from, 1));
            self.recv(word, 3, 2);
            for (const auto& each : receiving) finish(each);
            for (int from = 1; from < 4; ++from)
              expect(got[static_cast<std::size_t>(from)] == long_one, "the long ones");
            continue;
          }
          if (before > 0) self.recv(word, before, 2);
          // Longer than ranks poll, so that rank 0 sleeps.
          std::this_thread::sleep_for(milliseconds(1 + turn % 3));
          self.send(long_one, 0, 1);
          self.send(word, (self.rank() + 1) % 4, 2);
        }
      },
      false));
}

TEST_CASE("shared memory: messages and collectives on several threads do not interfere") {
  check_exited(run_shm_processes(3, [](ShmRank& self, const Say&) {
    const int next = (self.rank() + 1) % 3;
    const int before = (self.rank() + 2) % 3;
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int tag = 0; tag < 2; ++tag) {
      threads.emplace_back([&, tag] {
        for (int turn = 0; turn < 100; ++turn) {
          const std::size_t count = turn % 5 == 0 ? 30000 : 17;
          const Integers data = numbers(count, turn + tag);
          Integers got(count);
          const auto receiving = self.backend().start_recv(got, before, tag);
          self.send(data, next, tag);
          finish(receiving);
          if (got != data) ++wrong;
        }
      });
    }
    for (int turn = 0; turn < 300; ++turn) {
      Integers ones(turn % 7 == 0 ? 50000 : 5, 1);
      self.run({.operation = Operation::AllReduce,
                .type = DataType::I32,
                .input = ones.data(),
                .output = ones.data(),
                .count = ones.size()});
      if (ones.back() != 3) ++wrong;
    }
    for (std::thread& thread : threads) thread.join();
    expect(wrong == 0, "all right");
  }));
}

}  // namespace drun

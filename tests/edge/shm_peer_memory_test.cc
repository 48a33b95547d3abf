#include "worker_lib/shm/peer_memory.h"

#include <unistd.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/shm_ranks.h"
#include "worker_lib/shm/shm_backend.h"

namespace drun {
namespace {

namespace shm = worker::shm;
using std::chrono::milliseconds;
using test::check_exited;
using test::expect;
using test::run_ranks;
using test::run_shm_processes;
using test::Say;
using test::shm_context;
using test::ShmRank;
using test::soon;
using test::StoreProcess;

using Integers = std::vector<std::int32_t>;

shm::Segment new_segment(int size) {
  const std::size_t bytes = shm::Layout(size).size_bytes();
  const UniqueFd memory = shm::create_memory(bytes);
  return shm::Segment(std::make_shared<const shm::Mapping>(memory.get(), 0, bytes), size);
}

std::uint64_t address_of(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

bool reads(shm::PeerMemory& memory, int rank, std::string_view text) {
  std::string seen(text.size(), ' ');
  return memory.read(rank, address_of(text.data()), reinterpret_cast<std::byte*>(seen.data()),
                     seen.size()) &&
         seen == text;
}

Integers numbers(int first) {
  Integers all(1 << 20);
  std::iota(all.begin(), all.end(), first);
  return all;
}

}  // namespace

// Rank 0 is this process, so that what it has is known.
TEST_CASE("shared memory: another rank's memory is read where that rank says it is") {
  const shm::Segment segment = new_segment(2);
  shm::PeerMemory mine(segment, 1, true);
  CHECK_FALSE(reads(mine, 0, "nobody has said anything"));
  const shm::PeerMemory theirs(segment, 0, true);
  CHECK(reads(mine, 0, "some text"));
  CHECK(reads(mine, 0, ""));
}

TEST_CASE("shared memory: a rank's memory that was not to be had once is left alone") {
  const shm::Segment segment = new_segment(2);
  shm::PeerMemory mine(segment, 1, true);
  const shm::PeerMemory theirs(segment, 0, true);
  CHECK(reads(mine, 0, "some text"));
  std::byte byte{};
  CHECK_FALSE(mine.read(0, 8, &byte, 1));  // nothing is mapped there
  CHECK_FALSE(reads(mine, 0, "some text"));
  shm::PeerMemory forbidden(segment, 1, false);
  CHECK_FALSE(reads(forbidden, 0, "some text"));
}

TEST_CASE("shared memory: a process that does not have the rank's number is not that rank") {
  const shm::Segment segment = new_segment(2);
  shm::PeerMemory mine(segment, 1, true);
  const shm::PeerMemory theirs(segment, 0, true);
  SECTION("another number") { segment.home(0).token.store(4711); }
  SECTION("a process that has nothing there") { segment.home(0).address.store(8); }
  SECTION("no process") { segment.home(0).pid.store(0x7fffffff); }
  CHECK_FALSE(reads(mine, 0, "some text"));
}

TEST_CASE("shared memory: messages go through the ring when a rank's memory is not to be had") {
  const StoreProcess store;
  const bool is_known = GENERATE(true, false);
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say&) {
    shm::Parts parts = shm::connect_parts(shm_context(rank, 2, store.port()));
    const shm::Segment segment = parts.segment;
    ShmRank self(shm::make_backend(std::move(parts)), rank, 2);
    if (rank == 0 && !is_known) segment.home(0).token.store(4711);
    self.barrier();
    const Integers data = numbers(rank);
    for (int turn = 0; turn < 3; ++turn) {
      Integers got(data.size());
      const auto sending = self.backend().start_send(data, 1 - rank, turn);
      self.recv(got, 1 - rank, turn);
      sending->finish(soon());
      expect(got == numbers(1 - rank), "the other's numbers");
    }
    self.barrier();
  }));
}

TEST_CASE("shared memory: what a sender has given up is not read from its memory any more") {
  check_exited(run_shm_processes(2, [](ShmRank& self, const Say&) {
    Integers data = numbers(0);
    if (self.rank() == 0) {
      const auto sending = self.backend().start_send(data, 1, 7);
      self.failure_of([&] { sending->finish(soon(milliseconds(1))); });
      std::fill(data.begin(), data.end(), -1);
    } else {
      Integers got(data.size());
      const std::string failure = self.failure_of([&] { self.recv(got, 0, 7); });
      expect(failure != "no failure" || got == data, "no other memory is taken for the message");
    }
    self.failure_of([&] { self.barrier(); });
    _exit(0);  // the last barrier of all tests fails here, as it should
  }));
}

}  // namespace drun

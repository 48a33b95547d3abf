#include "worker_lib/shm/peer_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/shm_ranks.h"
#include "worker_lib/core/calls.h"
#include "worker_lib/shm/shm_backend.h"

namespace drun {
namespace {

namespace shm = worker::shm;
using std::chrono::milliseconds;
using test::check_exited;
using test::expect;
using test::finish;
using test::run_ranks;
using test::run_shm_processes;
using test::Say;
using test::shm_context;
using test::ShmRank;
using test::soon;
using test::StoreProcess;

using Integers = std::vector<std::int32_t>;

shm::Segment new_segment(int size) {
  const UniqueFd memory = shm::create_memory(shm::Segment::bytes_for(size));
  return shm::Segment(memory.get(), size);
}

std::uint64_t address_of(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

bool reads(shm::PeerMemory& memory, int rank, std::string_view text) {
  std::string seen(text.size(), ' ');
  return memory.read(rank, address_of(text.data()), reinterpret_cast<std::byte*>(seen.data()),
                     seen.size()) &&
         seen == text;
}

// Whole pages of memory, which the process can make inaccessible.
class Pages {
 public:
  explicit Pages(std::size_t count)
      : bytes_(count * kPageBytes),
        data_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(data_ != MAP_FAILED);
    std::memset(data_, 0, bytes_);
  }
  ~Pages() { munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  void* data() const { return data_; }
  std::size_t size_bytes() const { return bytes_; }
  void close(std::size_t page) const {
    REQUIRE(mprotect(static_cast<std::byte*>(data_) + page * kPageBytes, kPageBytes, PROT_NONE) ==
            0);
  }

 private:
  static constexpr std::size_t kPageBytes = 4096;

  const std::size_t bytes_;
  void* const data_;
};

Integers numbers(int first) {
  Integers all(1 << 20);
  std::iota(all.begin(), all.end(), first);
  return all;
}

}  // namespace

// This process acts as rank 0, so its memory's contents are known.
TEST_CASE(
    "shared memory: another rank's memory can be read once that rank has published its address") {
  const shm::Segment segment = new_segment(2);
  shm::PeerMemory mine(segment, 1, true);
  CHECK_FALSE(reads(mine, 0, "no rank has sent anything"));
  const shm::PeerMemory theirs(segment, 0, true);
  CHECK(reads(mine, 0, "some text"));
  CHECK(reads(mine, 0, ""));
}

TEST_CASE("shared memory: after one failed read a rank's memory is not read again") {
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

TEST_CASE("shared memory: a process without the rank's token is not taken for that rank") {
  const shm::Segment segment = new_segment(2);
  shm::PeerMemory mine(segment, 1, true);
  const shm::PeerMemory theirs(segment, 0, true);
  SECTION("another token") { segment.home(0).token.store(4711); }
  SECTION("a process with nothing mapped there") { segment.home(0).address.store(8); }
  SECTION("no process") { segment.home(0).pid.store(0x7fffffff); }
  CHECK_FALSE(reads(mine, 0, "some text"));
}

TEST_CASE("shared memory: messages go through the ring if a rank's memory cannot be read") {
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
      finish(sending);
      expect(got == numbers(1 - rank), "the other's numbers");
    }
    self.barrier();
  }));
}

TEST_CASE("shared memory: only both ends of a buffer are checked in advance") {
  const shm::Segment segment = new_segment(2);
  shm::PeerMemory mine(segment, 1, true);
  CHECK_FALSE(mine.seems_open());
  const shm::PeerMemory theirs(segment, 0, true);
  CHECK(mine.seems_open());
  const Pages pages(3);
  const shm::PeerBuffers buffers(mine, 1, {address_of(pages.data()), 8}, pages.size_bytes());
  CHECK(buffers.are_there());
  std::vector<std::byte> got(pages.size_bytes());
  CHECK(buffers.read(0, 0, got.data(), got.size()));
  pages.close(1);
  CHECK(buffers.are_there());
  CHECK_FALSE(buffers.read(0, 0, got.data(), got.size()));
  CHECK_FALSE(mine.seems_open());
  CHECK_FALSE(buffers.are_there());
}

// 4 MB or more is read from the peer's memory where that is possible.
TEST_CASE(
    "shared memory: long sums of two ranks are exact, whether they can read each other or not") {
  const StoreProcess store;
  const std::string unknown = GENERATE("nobody", "rank 0", "both");
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say&) {
    shm::Parts parts = shm::connect_parts(shm_context(rank, 2, store.port()));
    const shm::Segment segment = parts.segment;
    ShmRank self(shm::make_backend(std::move(parts)), rank, 2);
    if (unknown == "both" || (unknown == "rank 0" && rank == 0)) {
      segment.home(rank).token.store(4711);
    }
    self.barrier();
    for (const std::size_t count : {1U << 20, (1U << 20) + 1, 3U << 20, (8U << 20) + 3}) {
      Integers data(count);
      std::iota(data.begin(), data.end(), rank);
      self.run(worker::make_call(
          {rank, 2}, {.operation = Operation::AllReduce, .input = data, .output = data}));
      bool is_right = true;
      for (std::size_t i = 0; i < count; ++i) is_right &= data[i] == static_cast<int>(2 * i + 1);
      expect(is_right, "the sum of " + std::to_string(count));
      // The other rank no longer reads the buffer.
      std::fill(data.begin(), data.end(), -1);
    }
    self.barrier();
  }));
}

TEST_CASE("shared memory: a sum over a buffer that becomes unreadable fails on both ranks") {
  check_exited(run_shm_processes(2, [](ShmRank& self, const Say&) {
    constexpr std::size_t kPages = 1024;
    const Pages pages(kPages);
    self.barrier();
    // The page lies in rank 0's share, which this rank does not touch before rank 0 has reduced it.
    if (self.rank() == 1) pages.close(kPages / 4);
    const Elements data(pages.data(), pages.size_bytes() / 4, DataType::F32);
    const std::string failure = self.failure_of([&] {
      self.run(worker::make_call(
          {self.rank(), 2}, {.operation = Operation::AllReduce, .input = data, .output = data}));
    });
    expect(failure.find("can be read at its ends, but not in between") != std::string::npos,
           failure);
    self.failure_of([&] { self.barrier(); });
    _exit(0);  // as below
  }));
}

TEST_CASE("shared memory: a message whose send timed out is not read from the sender's memory") {
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
    _exit(0);  // skips the harness's last barrier, which would fail here
  }));
}

}  // namespace drun

// A program of two MPI ranks. Checks that calls which the mpi backend rejects change nothing, that
// numbers of 8 bits are moved as such, that destroyed groups free their communicators, and that a
// message pending after a timeout is not written into freed memory. Rank 0 prints "as it should
// be".
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "drun/mpi.h"
#include "drun/process_group.h"
#include "drun/record.h"

namespace {

using drun::DataType;
using drun::Elements;
using drun::ProcessGroup;
using drun::WorkerError;
using std::chrono::milliseconds;
using std::chrono::seconds;

template <typename Action>
WorkerError::Kind kind_of(Action&& action) {
  try {
    action();
  } catch (const WorkerError& error) {
    return error.kind();
  }
  throw std::runtime_error("no error");
}

void expect(bool is_so, const char* what) {
  if (!is_so) throw std::runtime_error(what);
}

ProcessGroup connect() {
  drun::InitOptions options;
  options.backend = "mpi";
  options.timeout = seconds(60);
  return ProcessGroup::connect(options);
}

// Allocates many blocks of every size with a fixed content, to reuse freed memory.
class Filling {
 public:
  Filling() {
    for (std::size_t bytes = 16; bytes <= 512; bytes += 16) {
      for (int i = 0; i < 200; ++i) blocks_.emplace_back(bytes, kFill);
    }
  }
  bool is_unchanged() const {
    for (const std::vector<unsigned char>& block : blocks_) {
      for (const unsigned char byte : block) {
        if (byte != kFill) return false;
      }
    }
    return true;
  }

 private:
  static constexpr unsigned char kFill = 0x5A;
  std::vector<std::vector<unsigned char>> blocks_;
};

int next_number() {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_SELF, &comm);
  const int number = MPI_Comm_c2f(comm);
  MPI_Comm_free(&comm);
  return number;
}

void run() {
  ProcessGroup group = connect();
  const int other = 1 - group.rank();
  unsigned char byte = 1;
  const Elements too_many(&byte, std::size_t{1} << 31, DataType::U8);
  using Kind = WorkerError::Kind;
  expect(kind_of([&] { group.broadcast(too_many, 0); }) == Kind::Unsupported, "broadcast refused");
  expect(kind_of([&] { group.send(too_many, other); }) == Kind::Unsupported, "send refused");
  expect(kind_of([&] { group.recv(too_many, other); }) == Kind::Unsupported, "recv refused");
  std::vector<int> sum{1};
  group.all_reduce(sum);
  expect(sum[0] == 2, "the group works after refusals");

  const auto own = static_cast<unsigned char>(1 + group.rank());
  std::vector<unsigned char> bytes(4, own);
  group.broadcast(Elements(bytes.data(), 2, DataType::F8E4M3), 0);
  expect(bytes == std::vector<unsigned char>{1, 1, own, own}, "only numbers of 8 bits are moved");

  // A null pointer at both ends is no operation in place, which only the root may ask for.
  std::vector<int> none;
  group.reduce(none, 0);

  // Open MPI gives a communicator the first free number.
  const int first_free = next_number();
  for (int i = 0; i < 20; ++i) {
    ProcessGroup short_lived = *group.new_group({0, 1});
    short_lived.barrier();
    short_lived.destroy();
  }
  expect(next_number() == first_free, "a destroyed group frees its communicators");

  ProcessGroup later = *group.new_group({0, 1});
  std::vector<int> data(1000);
  if (group.rank() == 0) {
    expect(kind_of([&] { group.recv(data, other, {milliseconds(300)}); }) == Kind::Timeout,
           "a timeout");
    const Filling filling;
    later.barrier();
    // MPI progresses the late message during calls for other messages.
    std::this_thread::sleep_for(milliseconds(200));
    later.barrier();
    expect(filling.is_unchanged(), "memory that was freed is not written");
    std::printf("as it should be\n");
  } else {
    later.barrier();
    const drun::Work sent = group.send(data, other, drun::async_op);
    later.barrier();
  }
  std::fflush(stdout);
  later.barrier();
  group.destroy();
}

// With DRUN_DEBUG=1.
void compare() {
  ProcessGroup group = connect();
  const std::vector<int> mine(group.rank() == 0 ? 1 : 2);
  std::vector<int> all(group.rank() == 0 ? 2 : 0);
  expect(kind_of([&] {
           group.gather_v(mine, all, {1, 1}, 0);
         }) == WorkerError::Kind::Mismatch,
         "counts that differ are a mismatch");
  if (group.rank() == 0) std::printf("as it should be\n");
}

}  // namespace

int main() {
  drun::register_mpi_backend();
  return drun::record([] { std::getenv("DRUN_DEBUG") != nullptr ? compare() : run(); });
}

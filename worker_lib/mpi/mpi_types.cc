#include "worker_lib/mpi/mpi_types.h"

#include <array>
#include <cassert>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace drun::worker::mpi {

void must(int code, const char* what, std::optional<int> peer) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw BackendFailure(
      WorkerError::Kind::System, peer,
      std::string(what) + ": " + std::string(text.data(), static_cast<std::size_t>(length)));
}

void initialize() {
  int is_done = 0;
  MPI_Initialized(&is_done);
  if (is_done == 0) {
    int provided = 0;
    must(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    // Else mpirun takes the end of this process for a crash.
    std::atexit([] {
      int is_over = 0;
      MPI_Finalized(&is_over);
      if (is_over == 0) MPI_Finalize();
    });
  }
  int level = 0;
  MPI_Query_thread(&level);
  if (level < MPI_THREAD_MULTIPLE) {
    throw BackendFailure(WorkerError::Kind::Unsupported,
                         "MPI was initialized without MPI_THREAD_MULTIPLE, which the backend mpi "
                         "needs; use MPI_Init_thread, or leave it to drun");
  }
}

// In the order of DataType.
std::optional<MPI_Datatype> mpi_type(DataType type) {
  const MPI_Datatype none = MPI_DATATYPE_NULL;
  const std::array<MPI_Datatype, 13> types = {
      MPI_UINT8_T, MPI_INT8_T, MPI_INT16_T, MPI_INT32_T, MPI_UINT32_T, MPI_INT64_T, MPI_UINT64_T,
      none,        none,       MPI_FLOAT,   MPI_DOUBLE,  none,         none};
  const MPI_Datatype found = types[static_cast<std::size_t>(type)];
  return found == none ? std::nullopt : std::optional<MPI_Datatype>(found);
}

MPI_Datatype moved_as(DataType type) {
  return mpi_type(type).value_or(size_bytes(type) == 1 ? MPI_UINT8_T : MPI_UINT16_T);
}

// In the order of ReduceOp.
MPI_Op mpi_op(ReduceOp op) {
  const std::array<MPI_Op, 8> ops = {MPI_SUM,  MPI_PROD, MPI_MIN,  MPI_MAX,
                                     MPI_BAND, MPI_BOR,  MPI_BXOR, MPI_SUM};
  return ops[static_cast<std::size_t>(op)];
}

std::string refusal_of_count(std::size_t count) {
  if (count <= static_cast<std::size_t>(std::numeric_limits<int>::max())) return "";
  return "MPI takes at most 2^31 - 1 elements at once, not " + std::to_string(count) +
         "; split the operation, or use shm+tcp";
}

int to_int(std::size_t count) {
  assert(refusal_of_count(count).empty());
  return static_cast<int>(count);
}

void keep_for_ever(std::shared_ptr<void> state) {
  static std::mutex& mutex = *new std::mutex;
  static std::vector<std::shared_ptr<void>>& kept = *new std::vector<std::shared_ptr<void>>;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(state));
}

bool are_under_way(MPI_Request* requests, std::size_t count) noexcept {
  int is_over = 0;
  MPI_Finalized(&is_over);
  if (is_over != 0) return false;
  bool is_any = false;
  for (MPI_Request* request = requests; request != requests + count; ++request) {
    int is_done = 1;
    if (*request != MPI_REQUEST_NULL) MPI_Test(request, &is_done, MPI_STATUS_IGNORE);
    if (is_done == 0) is_any = true;
  }
  return is_any;
}

}  // namespace drun::worker::mpi

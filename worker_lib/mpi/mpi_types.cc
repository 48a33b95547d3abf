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
    throw BackendFailure(WorkerError::Kind::Unsupported, std::nullopt,
                         "MPI was initialized without MPI_THREAD_MULTIPLE, which the backend mpi "
                         "needs; use MPI_Init_thread, or leave it to drun");
  }
}

std::optional<MPI_Datatype> mpi_type(DataType type) {
  switch (type) {
    case DataType::U8:
      return MPI_UINT8_T;
    case DataType::I8:
      return MPI_INT8_T;
    case DataType::I16:
      return MPI_INT16_T;
    case DataType::I32:
      return MPI_INT32_T;
    case DataType::U32:
      return MPI_UINT32_T;
    case DataType::I64:
      return MPI_INT64_T;
    case DataType::U64:
      return MPI_UINT64_T;
    case DataType::F32:
      return MPI_FLOAT;
    case DataType::F64:
      return MPI_DOUBLE;
    case DataType::F16:
    case DataType::BF16:
    case DataType::F8E4M3:
    case DataType::F8E5M2:
      return std::nullopt;
  }
  return std::nullopt;
}

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      return MPI_SUM;
    case ReduceOp::Product:
      return MPI_PROD;
    case ReduceOp::Min:
      return MPI_MIN;
    case ReduceOp::Max:
      return MPI_MAX;
    case ReduceOp::Band:
      return MPI_BAND;
    case ReduceOp::Bor:
      return MPI_BOR;
    case ReduceOp::Bxor:
      return MPI_BXOR;
  }
  return MPI_SUM;
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

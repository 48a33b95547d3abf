// edge. Converts drun's types, operations, counts and errors to MPI's.
//
// Thread:  any.
// Errors:  BackendFailure.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "drun/backend.h"

namespace drun::worker::mpi {

// Initializes MPI with MPI_THREAD_MULTIPLE if the program has not, and then finalizes it at exit.
void initialize();

// Throws System with MPI's text for the code, unless it is MPI_SUCCESS.
void must(int code, const char* what, std::optional<int> peer = {});

// Absent if MPI has no such type.
std::optional<MPI_Datatype> mpi_type(DataType type);
// A type of the same size, for elements that are only moved.
MPI_Datatype moved_as(DataType type);
// For Avg: the sum.
MPI_Op mpi_op(ReduceOp op);
// Why MPI, which counts with int, does not support this number of elements; empty if it does.
std::string refusal_of_count(std::size_t count);
// Requires that refusal_of_count() is empty.
int to_int(std::size_t count);

// MPI cannot be interrupted: it accesses a request's memory until the request is done. If a Held is
// destroyed while its State (with an array `requests`) has pending requests, the State is kept
// until the process ends, and `has_left` is set.
void keep_for_ever(std::shared_ptr<void> state);
// Whether any of these is pending. Polls once.
bool are_under_way(MPI_Request* requests, std::size_t count) noexcept;

template <typename State>
class Held {
 public:
  explicit Held(std::atomic<bool>& has_left)
      : state_(std::make_shared<State>()), has_left_(has_left) {}
  ~Held() {
    if (!are_under_way(state_->requests.data(), state_->requests.size())) return;
    has_left_ = true;
    keep_for_ever(state_);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  State* operator->() const { return state_.get(); }
  State& operator*() const { return *state_; }

 private:
  std::shared_ptr<State> state_;
  std::atomic<bool>& has_left_;
};

}  // namespace drun::worker::mpi

// edge. drun's words in MPI's: types, operations, counts and errors.
//
// Thread:  any.
// Errors:  BackendFailure.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "drun/backend.h"

namespace drun::worker::mpi {

// Initializes MPI with MPI_THREAD_MULTIPLE if the program has not, and then finalizes it at exit.
void initialise();

// Throws System with MPI's own words for the code, unless it is MPI_SUCCESS.
void must(int code, const char* what, std::optional<int> peer = {});

// Nothing: MPI has no such type.
std::optional<MPI_Datatype> mpi_type(DataType type);
// Of Avg the sum.
MPI_Op mpi_op(ReduceOp op);
// Why MPI, which counts with int, cannot take so many elements at once; empty: it can.
std::string refusal_of_count(std::size_t count);
// Requires that it is not refused.
int to_int(std::size_t count);

// MPI cannot be interrupted: it reads and writes what a request was given until the request is
// done. A State (with an array `requests`) that still has such requests when its Held goes stays
// where it is for as long as the process lives.
void keep_for_ever(std::shared_ptr<void> state);
// Whether MPI still has work to do for any of these; asks once.
bool are_under_way(MPI_Request* requests, std::size_t count) noexcept;

template <typename State>
class Held {
 public:
  Held() : state_(std::make_shared<State>()) {}
  ~Held() {
    if (are_under_way(state_->requests.data(), state_->requests.size())) keep_for_ever(state_);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  State* operator->() const { return state_.get(); }
  State& operator*() const { return *state_; }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace drun::worker::mpi

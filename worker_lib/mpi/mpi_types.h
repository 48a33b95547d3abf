// edge. drun's words in MPI's: types, operations, counts and errors.
//
// Thread:  any.
// Errors:  BackendFailure.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <optional>

#include "drun/backend.h"

namespace drun::worker::mpi {

// Initialises MPI with MPI_THREAD_MULTIPLE if the program has not, and then finalises it at exit.
void initialise();

// Throws System with MPI's own words for the code, unless it is MPI_SUCCESS.
void must(int code, const char* what, std::optional<int> peer = {});

// Nothing: MPI has no such type.
std::optional<MPI_Datatype> mpi_type(DataType type);
// Of Avg the sum.
MPI_Op mpi_op(ReduceOp op);
// MPI counts with int; throws Unsupported beyond.
int to_int(std::size_t count);

}  // namespace drun::worker::mpi

// edge. The backend "mpi": collectives by the MPI that this library was built with. A library of
// its own, as a program can hold one MPI only and must be linked with it:
//
//     find_package(drun REQUIRED COMPONENTS mpi)
//     target_link_libraries(my_program PRIVATE drun::worker_mpi)
//
//     drun::register_mpi_backend();
//     drun::ProcessGroup group = drun::init_process_group({.backend = "mpi"});
//
//     mpirun -np 16 ./my_program
//
// MPI:     initialised here with MPI_THREAD_MULTIPLE if the program has not done it, and then
//          finalised at exit. The job's ranks must be those of MPI_COMM_WORLD.
// Limits:  no f16 and bf16; uneven counts and displacements up to 2^31 - 1 elements; an operation
//          that has failed may still write to its memory (MPI cannot take it back).
// Thread:  any, before init_process_group.
#pragma once

namespace drun {

void register_mpi_backend();

}  // namespace drun

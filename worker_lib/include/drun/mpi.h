// edge. The backend "mpi": collectives with the MPI that this library was built with. It is a
// separate library, because a program can contain only one MPI and must be linked with it:
//
//     find_package(drun REQUIRED COMPONENTS mpi)
//     target_link_libraries(my_program PRIVATE drun::worker_mpi)
//
//     drun::register_mpi_backend();
//     drun::ProcessGroup group = drun::init_process_group({.backend = "mpi"});
//
//     mpirun -np 16 ./my_program
//
// MPI:     initialized by init_process_group with MPI_THREAD_MULTIPLE unless the program has
//          initialized it, and then finalized at exit. The job's ranks must be those of
//          MPI_COMM_WORLD.
// Limits:  no f16 and bf16. Uneven counts and displacements up to 2^31 - 1 elements: a rank that
//          knows of more throws Unsupported, and those that do not time out. An operation that has
//          failed may still write to its memory, because MPI cannot cancel it. For the same reason,
//          connecting has no deadline once all ranks have met at the store: they wait for a rank
//          that stops after that, until its process ends.
// Thread:  any, before init_process_group.
#pragma once

namespace drun {

void register_mpi_backend();

}  // namespace drun

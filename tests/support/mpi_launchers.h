// edge. The launchers of MPI that this machine has.
#pragma once

#include <chrono>
#include <string>

#include "tests/support/process.h"

namespace drun::test {

inline std::string version_of(const std::string& launcher) {
  return testing::run({.argv = {"sh", "-c", launcher + " --version 2>&1"}},
                      std::chrono::seconds(60))
      .out;
}

inline bool has_open_mpi() { return version_of("mpirun").find("(Open MPI)") != std::string::npos; }

// Open MPI 5 has other options for its ssh, and does not reveal mpirun's machine.
inline bool is_open_mpi_4() { return version_of("mpirun").starts_with("mpirun (Open MPI) 4."); }

inline bool has_hydra() {
  return version_of("mpiexec.hydra").find("HYDRA build details") != std::string::npos;
}

}  // namespace drun::test

// core. Maps options of other launchers to drun's, so that a command line written for one of them
// gets a helpful error instead of "unknown option". See mpirun(1) of Open MPI 4 and 5,
// mpiexec.hydra(1), srun(1), deepspeed --help, accelerate launch --help, horovodrun --help.
#pragma once

#include <string_view>

namespace drun {

// `option` is in the user's spelling: one dash or two, '_' or '-', without a value. Empty if there
// is no known counterpart.
std::string_view counterpart(std::string_view option);

}  // namespace drun

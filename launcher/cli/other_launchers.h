// core. What options of other launchers are called here: a line that was written for one of them
// should end in the right one, not in "unknown option".
// Source:  mpirun(1) of Open MPI 4 and 5, mpiexec.hydra(1), srun(1); deepspeed --help, accelerate
//          launch --help, horovodrun --help.
// Thread:  any.   Errors: none.
#pragma once

#include <string_view>

namespace drun {

// `option` as the user wrote it, with one dash or two, '_' or '-', without a value. Empty: none
// that we know of.
std::string_view counterpart(std::string_view option);

}  // namespace drun

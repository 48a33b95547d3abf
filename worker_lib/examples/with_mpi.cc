// A source that is linked into a program: from then on it knows the backend "mpi".
#include "drun/mpi.h"

namespace {

[[maybe_unused]] const bool is_registered = (drun::register_mpi_backend(), true);

}  // namespace

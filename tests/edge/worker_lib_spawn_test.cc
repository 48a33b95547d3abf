#include <stdexcept>
#include <vector>

#include "drun/process_group.h"
#include "drun/spawn.h"
#include "tests/support/catch.h"
#include "tests/support/default_sigterm.h"

namespace drun {

TEST_CASE("spawned ranks form a group, and an exception on one rank stops them all") {
  spawn(
      [](int rank) {
        ProcessGroup group = init_process_group();
        if (group.rank() != rank || group.size() != 3) throw std::runtime_error("wrong rank");
        std::vector<int> ones{1};
        group.all_reduce(ones);
        if (ones[0] != 3) throw std::runtime_error("wrong sum");
        group.barrier();
      },
      3);
  const test::DefaultSigterm default_sigterm;
  try {
    spawn(
        [](int rank) {
          ProcessGroup group = init_process_group();
          group.barrier();
          if (rank == 1) throw std::runtime_error("rank 1 has had enough");
          group.barrier();
        },
        3);
    FAIL("nothing was thrown");
  } catch (const SpawnError& error) {
    CHECK(error.rank() == 1);
    CHECK(error.message() == "rank 1 has had enough");
  }
}

}  // namespace drun

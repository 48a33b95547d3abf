#include "tests/support/in_rank.h"

#include "tests/support/catch.h"

namespace drun::test {

void check_exited(const std::vector<RankEnd>& ends, int exit_code) {
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    INFO("rank " << rank << " said: " << ends[rank].said << " signal " << ends[rank].signal);
    CHECK(ends[rank].exit_code == exit_code);
  }
}

}  // namespace drun::test

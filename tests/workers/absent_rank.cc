// absent_rank R N: after N all_reduces rank R sleeps forever, and all others continue. In the next
// round all ranks return at once.
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "drun/process_group.h"
#include "drun/record.h"

int main(int argc, char** argv) {
  return drun::record([argc, argv] {
    drun::ProcessGroup group = drun::init_process_group();
    if (group.restart_count() > 0) {
      group.barrier();
      return;
    }
    const int absent = argc > 1 ? std::atoi(argv[1]) : 0;
    const int count = argc > 2 ? std::atoi(argv[2]) : 0;
    std::vector<float> numbers(1000);
    for (int i = 0;; ++i) {
      while (i == count && group.rank() == absent) pause();
      group.all_reduce(numbers);
    }
  });
}

// Rank 0 sends a greeting to every other rank, which prints what it got and answers.
//
//     drun --standalone --nproc_per_node=4 ./p2p
//
//     rank 1 of 4 got 10 from rank 0
//     rank 2 of 4 got 20 from rank 0
//     rank 3 of 4 got 30 from rank 0
//     rank 0 of 4 got 11 21 31 back
#include <iostream>
#include <sstream>

#include "drun/process_group.h"
#include "drun/record.h"

namespace {

void greet_all(drun::ProcessGroup& group) {
  for (int peer = 1; peer < group.size(); ++peer) {
    const int greeting = 10 * peer;
    group.send(greeting, peer);
  }
  std::ostringstream line;  // one write a line, so that lines of several ranks never mix
  line << "rank 0 of " << group.size() << " got";
  for (int peer = 1; peer < group.size(); ++peer) {
    int answer = 0;
    group.recv(answer, peer);
    line << " " << answer;
  }
  line << " back\n";
  std::cout << line.str() << std::flush;
}

void answer(drun::ProcessGroup& group) {
  int number = 0;
  group.recv(number, 0);
  std::ostringstream line;
  line << "rank " << group.rank() << " of " << group.size() << " got " << number
       << " from rank 0\n";
  std::cout << line.str() << std::flush;
  number += 1;
  group.send(number, 0);
}

}  // namespace

int main() {
  return drun::record([] {
    drun::ProcessGroup group = drun::init_process_group();
    if (group.rank() == 0) {
      greet_all(group);
    } else {
      answer(group);
    }
    group.barrier();
  });
}

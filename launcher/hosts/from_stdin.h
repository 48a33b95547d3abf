// edge. The other end of --hosts: an agent whose command line comes by its standard input, and who
// starts nothing before it is told to.
//
//   a line Start -> variables, directory, options, plan -> Hello -> "go" -> the job -> End
//
// Bounds:  Start within kStartAtMost and kMostLineBytes; "go" whenever, as the starter waits for
//          all hosts; end of file ends it at any time.
#pragma once

#include <chrono>

namespace drun::hosts {

inline constexpr std::chrono::seconds kStartAtMost{60};

// Gives the exit code. Changes this process's environment and directory, and forks
// (agent/guardian.h): call it while there is one thread only, and return what it gives.
int run_from_stdin();

}  // namespace drun::hosts

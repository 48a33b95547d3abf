// edge. Starts programs that are not workers (ssh, gdb ...), several at a time: no exec is waited
// for. Those that find no room wait until the exec of another is over.
//
// Owner:   outlives the io_context's run. Copies the data of a program.
// Thread:  the io_context's only.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "agent/process/command.h"
#include "agent/process/spawn.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

// A program from its order until its exec. Destroying it forgets the program: one that has not
// begun never will, one that has begun continues.
class ProgramStart {
 public:
  virtual ~ProgramStart() = default;
  ProgramStart(const ProgramStart&) = delete;
  ProgramStart& operator=(const ProgramStart&) = delete;

  // Its process has been reaped. Why its program was not executed; absent: it was, or the process
  // was killed before.
  virtual std::optional<Refusal> ended() = 0;

 protected:
  ProgramStart() = default;
};

class ProgramStarter {
 public:
  // Its process exists, and the pidfd is the callee's, or it was refused. Once, from the
  // io_context. If the program cannot be found, ended() may report it later.
  using OnBegun = std::function<void(const std::variant<Spawned, NotStarted, NotBound>&)>;
  // At most `most_at_once` are between clone and exec.
  ProgramStarter(asio::io_context& io, std::size_t most_at_once);
  ProgramStarter(const ProgramStarter&) = delete;
  ProgramStarter& operator=(const ProgramStarter&) = delete;
  ~ProgramStarter();

  // `descriptors`: those of the command, to be closed once the child has them.
  std::unique_ptr<ProgramStart> start(const Command& command, std::vector<UniqueFd> descriptors,
                                      OnBegun on_begun);

 private:
  class Impl;
  class Handle;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace drun::agent

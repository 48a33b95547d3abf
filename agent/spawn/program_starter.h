// edge. Starts programs that are not workers (ssh, gdb ...), several at a time, without waiting for
// their exec. Programs above the limit wait until the exec of another one is done.
//
// Owner:   must outlive the run of the io_context. Copies a program's data.
// Thread:  the io_context's only.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "agent/spawn/command.h"
#include "agent/spawn/spawn.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

// A program that is being started. Destroying this cancels a program that has not begun; one that
// has begun continues.
class ProgramStart {
 public:
  virtual ~ProgramStart() = default;
  ProgramStart(const ProgramStart&) = delete;
  ProgramStart& operator=(const ProgramStart&) = delete;

  // Call when the process has been reaped. Returns why the program was not executed; absent if it
  // was, or if the process was killed before.
  virtual std::optional<Refusal> ended() = 0;

  // Between clone and exec. The starter waits for the end of this time: if the process is killed in
  // it, ended() must still be called, or the io_context runs for ever.
  virtual bool is_before_exec() const = 0;

 protected:
  ProgramStart() = default;
};

class ProgramStarter {
 public:
  // Called once, from the io_context, when the process exists (the callee then owns the pidfd) or
  // was refused. If the program cannot be found, ended() may report it later.
  using OnBegun = std::function<void(const std::variant<Spawned, Refusal>&)>;
  // At most `most_at_once` programs are between clone and exec.
  ProgramStarter(asio::io_context& io, std::size_t most_at_once);
  ProgramStarter(const ProgramStarter&) = delete;
  ProgramStarter& operator=(const ProgramStarter&) = delete;
  ~ProgramStarter();

  // `descriptors`: the command's, closed once the child has them.
  std::unique_ptr<ProgramStart> start(const Command& command, std::vector<UniqueFd> descriptors,
                                      OnBegun on_begun);

 private:
  class Impl;
  class Handle;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace drun::agent

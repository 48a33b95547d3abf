// edge. Starts workers without an exec: as forks of a process that has loaded their program's
// modules already (agent/preload). Used by WorkerStarter in place of Spawner, worker by worker.
#pragma once

#include <functional>
#include <optional>

#include "agent/process/command.h"
#include "agent/process/spawn.h"

namespace drun::agent {

class WarmStarter {
 public:
  // The worker's process exists and is a child of this process; it waits for Start::go(). Absent:
  // it has no process and can be started in the usual way.
  using OnBegun = std::function<void(std::optional<Spawner::Begun>)>;

  virtual ~WarmStarter() = default;

  // `on_begun` is called once, by the io_context, never from within start(). One start at a time.
  // False: start this worker in the usual way; `on_begun` is not called.
  virtual bool start(const Command& command, int local_rank, OnBegun on_begun) = 0;

  // The process from which the workers are forked, a child of this process. 0: none.
  virtual int pid() const = 0;
};

}  // namespace drun::agent

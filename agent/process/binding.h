// edge. Binds the calling process to CPUs and memory nodes: between clone and exec, so that the
// program finds itself there from its first instruction, and its threads and children with it.
//
// Thread:  made in the parent; apply_ functions in the child: raw system calls only, since the
// child
//          may share its parent's memory.
// Errors:  errno, 0 for none. Nothing half done: a call that fails changes nothing.
// Source:  sched_setaffinity(2), set_mempolicy(2).
#pragma once

#include <vector>

#include "agent/spec.h"

namespace drun::agent {

class Binding {
 public:
  // Binds nothing for what `placement` leaves empty, or for no placement at all.
  explicit Binding(const WorkerPlacement* placement);

  int apply_cpus() const;
  // For Prefer with several nodes on a kernel older than 5.15, which does not know that: from the
  // node of the CPU that asks, which is one of them.
  int apply_memory() const;
  bool is_memory_strict() const { return memory_ == MemoryPolicy::Strict; }

 private:
  using Mask = std::vector<unsigned long>;

  Mask cpus_;
  Mask nodes_;
  bool has_one_node_ = false;
  MemoryPolicy memory_ = MemoryPolicy::None;
};

}  // namespace drun::agent

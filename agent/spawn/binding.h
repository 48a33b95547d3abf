// edge. Binds the calling process to CPUs and memory nodes between clone and exec, so that the
// program, its threads and its children are bound from their first instruction.
//
// Thread:  create it in the parent. Call the apply_ functions in the child; they make raw system
//          calls only, because the child may share its parent's memory.
// Errors:  the apply_ functions return errno, 0 on success. A call that fails changes nothing.
// Source:  sched_setaffinity(2), set_mempolicy(2).
#pragma once

#include <vector>

#include "agent/spec.h"

namespace drun::agent {

class Binding {
 public:
  // Does not bind what `placement` leaves empty; null: binds nothing.
  explicit Binding(const WorkerPlacement* placement);

  int apply_cpus() const;
  // Kernels before 5.15 cannot prefer several nodes. There, Prefer with several nodes allocates on
  // the node of the current CPU, which is one of them.
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

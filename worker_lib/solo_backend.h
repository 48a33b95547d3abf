// core. The backend of a world of one: every operation is done before it began.
#pragma once

#include "worker_lib/backend.h"

namespace drun::worker {

class SoloBackend final : public Backend {
 public:
  void agree(const Call&, std::uint32_t, Deadline) override {}
  void all_reduce(Elements, ReduceOp, std::uint32_t, Deadline) override {}
  void broadcast(Elements, int, std::uint32_t, Deadline) override {}
  // There is nobody else: the group refuses these before they get here.
  void send(ConstElements, int, int, Deadline) override {}
  void recv(Elements, int, int, Deadline) override {}
  void abort() noexcept override {}
};

}  // namespace drun::worker

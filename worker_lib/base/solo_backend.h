// core. The backend of a group with one rank: every operation is at most a copy.
#pragma once

#include <cstring>
#include <string>

#include "drun/backend.h"

namespace drun::worker {

class SoloBackend final : public Backend {
 public:
  std::string name() const override { return "solo"; }
  std::string refusal(const Call& call) const override {
    return call.gpu ? "solo works on memory of the host, not of a GPU" : "";
  }
  // With one rank, every operation has one part of `count` elements.
  void run(const Call& call, const Turn&) override {
    std::size_t count = call.count;
    if (call.is_uneven && call.operation == Operation::AllToAll) count = call.counts_in[0];
    if (count == 0 || call.output == nullptr || call.output == call.input) return;
    std::memcpy(call.output, call.input, count * size_bytes(call.type));
  }
  void abort() noexcept override {}
};

}  // namespace drun::worker

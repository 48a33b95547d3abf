// core. Where the workers of a node let NCCL's RAS service listen, as the user wants it.
// Owner:   values.   Thread: any.
// Source:  NCCL's user guide, NCCL_RAS_ADDR and NCCL_RAS_ENABLE (2.24 and later).
#pragma once

#include <optional>

#include "agent/spec.h"
#include "rendezvous/endpoint.h"

namespace drun::agent::ras {

constexpr const char* kAddressVariable = "NCCL_RAS_ADDR";
constexpr const char* kEnableVariable = "NCCL_RAS_ENABLE";

struct Wish {
  bool is_off = false;              // NCCL_RAS_ENABLE=0
  bool names_place = false;         // NCCL_RAS_ADDR is set
  std::optional<Endpoint> place{};  // ... and says where
  bool operator==(const Wish&) const = default;
};

// From what workers inherit, and the -x of the first program that says something.
Wish wish_of(const WorkerSpec& spec);

// drun gives the workers a place of their own. It is only of use where hangs are looked for, and
// other workers have torchrun's environment and no more.
bool gives_place(const AgentSpec& spec);

}  // namespace drun::agent::ras

// core. The rendezvous part of the plan: who this node is, where the nodes meet, what workers are
// told as MASTER_ADDR and MASTER_PORT.
// Source:  torchrun's static rendezvous and --standalone; c10d: plan_elastic.h.
// Errors:  Usage, naming option, value, reason and remedy.   Thread: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/host.h"
#include "launcher/options.h"
#include "rendezvous/join_spec.h"

namespace drun {

inline constexpr int kMasterPort = 29500;
inline constexpr int kMeetingPort = 29400;

struct Remarks {
  std::vector<std::string> notes{};
  std::vector<std::string> warnings{};
};

// "--option=value: reason; remedy".
Error usage_error(const std::string& what, const std::string& reason);

// Neither left out nor empty.
inline bool is_given(const std::optional<std::string>& text) { return text && !text->empty(); }

// Of --rdzv-conf; the last one, if it is there twice.
std::optional<std::string> rdzv_conf(const Options& options, std::string_view key);

// Adds to `remarks` also when it fails.
Result<JoinSpec> plan_join(const Options& options, const HostFacts& host, Remarks& remarks);

// What --nproc-per-node means on this machine.
Result<int> plan_workers(const Options& options, const HostFacts& host);

}  // namespace drun

// core. The part of the plan about electing the coordinator through etcd
// (docs/internals/election.md). Names, default port and --rdzv-conf keys are those of torchrun's
// etcd rendezvous.
// Errors:  Usage, naming option, value, reason and remedy; never a password.
#pragma once

#include <optional>
#include <string_view>

#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "launcher/plan/rendezvous.h"
#include "rendezvous/job/join_spec.h"

namespace drun {

inline constexpr int kEtcdPort = 2379;

// etcd, etcd-v2 and etcd-v3 mean the same here.
bool is_etcd(const Options& options);

// Keys of --rdzv-conf that only apply to etcd.
bool is_etcd_key(std::string_view key);

// For an elastic world. `is_host`: the value from --rdzv-conf.
Result<void> plan_etcd(JoinSpec& join, const Options& options, const HostFacts& host,
                       std::optional<bool> is_host);

}  // namespace drun

// core. The plan for a job whose coordinator is elected through etcd (docs/internals/election.md).
// Source:  torchrun's etcd rendezvous: its names, its default port, its --rdzv-conf keys.
// Errors:  Usage, naming option, value, reason and remedy; never a password.   Thread: any.
#pragma once

#include <optional>
#include <string_view>

#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "launcher/plan/rendezvous.h"
#include "rendezvous/job/join_spec.h"

namespace drun {

inline constexpr int kEtcdPort = 2379;

// etcd, etcd-v2 and etcd-v3 are the same thing.
bool is_etcd(const Options& options);

// Keys of --rdzv-conf that are for this alone.
bool is_etcd_key(std::string_view key);

// Of an elastic world. `is_host`: as --rdzv-conf says.
Result<void> plan_etcd(JoinSpec& join, const Options& options, const HostFacts& host,
                       std::optional<bool> is_host);

}  // namespace drun

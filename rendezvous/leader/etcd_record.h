// core. The contents of a job's two keys: its coordinator, and the state for the next one.
//
// Format:  JSON, so that users can read it with etcdctl.
// Limits:  the last kMostKept excluded nodes, with shortened names and reasons.
// Errors:  nullopt for text that drun has not written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/job/job_record.h"
#include "rendezvous/net/endpoint.h"

namespace drun::rendezvous::etcd {

constexpr std::size_t kMostKept = 128;

struct LeaderRecord {
  Endpoint endpoint{};
  std::uint64_t term = 0;
  std::uint64_t instance = 0;  // of the agent
  bool operator==(const LeaderRecord&) const = default;
};

struct StateRecord {
  std::uint64_t term = 0;  // of the leader that wrote it
  RoundRecord rounds{};
  bool operator==(const StateRecord&) const = default;
};

std::string text_of(const LeaderRecord& record);
std::string text_of(const StateRecord& record);
std::optional<LeaderRecord> leader_of(std::string_view text);
std::optional<StateRecord> state_of(std::string_view text);

}  // namespace drun::rendezvous::etcd

// core. How rules read variables: an empty one counts as unset, what is missing is noted by name,
// and the first value that makes no sense becomes `wrong`.
//
// Owner:   borrows the surroundings and the facts for its life.   Thread: any, one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/engines/facts.h"

namespace drun::engines {

// What numbers of nodes, ranks and slots can be at most.
inline constexpr long kMostCount = 1L << 20;

class Reading {
 public:
  Reading(const Surroundings& surroundings, Facts& facts)
      : surroundings_(surroundings), facts_(facts) {}

  // Absent when not set. These two blame nobody.
  std::optional<Told<std::string>> text(std::string_view name) const;
  bool is_set(std::string_view name) const { return text(name).has_value(); }

  // A whole number from `least` to kMostCount; anything else is wrong. Not set: absent, and
  // missing if it is needed.
  std::optional<Told<int>> number(std::string_view name, int least);
  std::optional<Told<int>> needed_number(std::string_view name, int least);
  std::optional<Told<std::string>> needed_text(std::string_view name);

  void miss(std::string_view name);
  void blame(std::string sentence);  // the first one stays

 private:
  const Surroundings& surroundings_;
  Facts& facts_;
};

// NAME="value", the value cut short when it is long.
std::string shown(const Told<std::string>& told);

// The whole text as a decimal number without a sign; absent if it is anything else.
std::optional<std::int64_t> whole_number(std::string_view text);

// "gpu3" of "gpu3.cluster.example"; an address stays whole.
std::string_view short_name(std::string_view host);

// A run id from an engine's name for the job; absent where that cannot be one, such as a path.
std::optional<std::string> run_id_from(std::string_view prefix, std::string_view job);

// A port that agents who know nothing but the job's name agree on: above the range from which
// Linux takes ports for outgoing connections.
inline constexpr int kFirstDerivedPort = 61440;
inline constexpr int kDerivedPorts = 4096;
int derived_port(std::string_view job);

}  // namespace drun::engines

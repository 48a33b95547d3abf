// core. The values of the options about restarts and elastic worlds, from text.
//
// Errors:  as option_values.h.   Thread: any.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/join_spec.h"
#include "rendezvous/result.h"

namespace drun {

// "3", "3/1h".
struct RestartBudget {
  int most = 0;
  std::chrono::milliseconds window{0};  // 0: the whole job
  bool operator==(const RestartBudget&) const = default;
};
// "5", "5:300".
struct RestartPause {
  std::chrono::milliseconds first{0};
  std::optional<std::chrono::milliseconds> most{};
  bool operator==(const RestartPause&) const = default;
};

Result<RestartBudget> parse_restarts(std::string_view text);
Result<RestartPause> parse_pause(std::string_view text);
Result<ExitKinds> parse_exit_kinds(std::string_view text);  // "1,42,SIGKILL"
Result<RankOrder> parse_rank_order(std::string_view text);

// 9 for "SIGKILL" and "KILL"; nothing for what is no signal's name.
std::optional<int> signal_number(std::string_view name);

}  // namespace drun

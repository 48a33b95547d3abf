#include "launcher/cli/option_values.h"

#include <csignal>

#include "tests/support/catch.h"

namespace drun {

using namespace std::chrono_literals;

TEST_CASE("restarts are a count, or a count per time or per progress") {
  CHECK(*parse_restarts("3") == RestartBudget{3, 0s});
  CHECK(*parse_restarts("3/1h") == RestartBudget{3, 1h});
  CHECK(*parse_restarts("1/90") == RestartBudget{1, 90s});
  CHECK(*parse_restarts("1/0.5s") == RestartBudget{1, 500ms});
  CHECK(*parse_restarts("2/30m") == RestartBudget{2, 30min});
  CHECK(*parse_restarts("2/1d") == RestartBudget{2, 24h});
  CHECK(*parse_restarts("5/progress") == RestartBudget{.most = 5, .per_progress = true});
  for (const char* wrong : {"", "x", "-1", "3/", "3/h", "3/Progress", "/progress", "3/0", "3/1y",
                            "3/1h/2", "/1h", "3/1e99d"})
    CHECK_FALSE(parse_restarts(wrong));
}

TEST_CASE("restart rules accept exit codes and signal names") {
  CHECK(*parse_exit_kinds("1, 42,SIGKILL,TERM") == ExitKinds{{1, 42}, {9, 15}});
  CHECK(*parse_exit_kinds("3,network,pointless,SIGTERM") ==
        ExitKinds{{3}, {15}, {"network", "pointless"}});
  for (const char* wrong : {"", "0", "256", "SIGNONE", "1;2", "-9", "none", "preempted"})
    CHECK_FALSE(parse_exit_kinds(wrong));
  CHECK_THAT(parse_exit_kinds("0").error().message, ContainsSubstring("\"0\" is neither"));
}

TEST_CASE("a pause has an initial and a maximum length") {
  CHECK(*parse_pause("0") == RestartPause{0s, {}});
  CHECK(*parse_pause("1.5:60") == RestartPause{1500ms, 60s});
  for (const char* wrong : {"", "x", "5:", "5:1", "5:60:7"}) CHECK_FALSE(parse_pause(wrong));
}

TEST_CASE("rank orders have three names") {
  CHECK(*parse_word<kRankOrderWords>("endpoint") == RankOrder::Endpoint);
  CHECK(*parse_word<kRankOrderWords>("natural") == RankOrder::Natural);
  CHECK(*parse_word<kRankOrderWords>("arrival") == RankOrder::Arrival);
  CHECK_FALSE(parse_word<kRankOrderWords>("random"));
}

TEST_CASE("a time limit is seconds, a number with a unit, or a time in Slurm's format") {
  CHECK(*parse_time_limit("90") == 90s);
  CHECK(*parse_time_limit("0.5") == 500ms);
  CHECK(*parse_time_limit("30m") == 30min);
  CHECK(*parse_time_limit("12h") == 12h);
  CHECK(*parse_time_limit("2d") == 48h);
  CHECK(*parse_time_limit("01:30:05") == 1h + 30min + 5s);
  CHECK(*parse_time_limit("100:00:00") == 100h);
  CHECK(*parse_time_limit("2-12") == 60h);
  CHECK(*parse_time_limit("2-12:30") == 60h + 30min);
  CHECK(*parse_time_limit("0-00:00:01") == 1s);
  CHECK(*parse_time_limit("999999-00:00:00") == 24h * 365 * 30);
  for (const char* wrong : {"", "0", "-1", "1:30", "00:00:00", "1:2:3:4", "1:60:00", "x-1", "1-",
                            "2-1:2:3:4", "1::2", "1234567:00:00", "1h30m", "inf", "1-2-3"})
    CHECK_FALSE(parse_time_limit(wrong));
}

TEST_CASE("a signal before the deadline is a time and optionally a signal that can be handled") {
  CHECK(*parse_signal_before("60") == SignalBefore{60s, SIGTERM});
  CHECK(*parse_signal_before("90:SIGUSR1") == SignalBefore{90s, SIGUSR1});
  CHECK(*parse_signal_before("90:USR2") == SignalBefore{90s, SIGUSR2});
  for (const char* wrong : {"", "0", "60:", "60:KILL", "60:SIGSTOP", "60:X", ":USR1", "60:10"})
    CHECK_FALSE(parse_signal_before(wrong));
}

}  // namespace drun

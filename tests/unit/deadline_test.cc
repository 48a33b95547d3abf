// Tests job deadlines: the plan and the parsing of scontrol output.
#include <csignal>
#include <ctime>

#include "agent/supervise/deadline_watch.h"
#include "launcher/plan/plan.h"
#include "tests/support/catch.h"
#include "tests/support/plans.h"

namespace drun {
namespace {

using namespace std::chrono_literals;
using test::train_host;

const HostFacts& in_slurm() {
  static const HostFacts host =
      train_host({}, {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_END_TIME", "1800000000"}});
  return host;
}

std::string error_of(const Options& options, const HostFacts& host) {
  const auto planned = plan_deadline(options, host, 30s);
  REQUIRE_FALSE(planned);
  CHECK(planned.error().code == ErrorCode::Usage);
  return planned.error().message;
}

}  // namespace

TEST_CASE("no deadline is set unless requested, not even in a Slurm job") {
  CHECK_FALSE(plan_deadline({}, in_slurm(), 30s)->has_value());
}

TEST_CASE("a Slurm job's deadline comes from its variables, with the job id for later queries") {
  Options options;
  options.signal_before = SignalBefore{90s, SIGUSR1};
  const DeadlineSpec deadline = plan_deadline(options, in_slurm(), 30s)->value();
  CHECK(deadline.end == WallTime(std::chrono::seconds(1800000000)));
  CHECK(deadline.slurm_job == "7");
  CHECK(deadline.signal_before == 90s);
  CHECK(deadline.signal == SIGUSR1);
  CHECK_FALSE(deadline.limit);
  for (const char* wrong : {"", "x", "-5", "0", "1800000000x", "99999999999999999999"}) {
    const HostFacts host = train_host({}, {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_END_TIME", wrong}});
    CHECK_FALSE(plan_deadline(options, host, 30s)->value().end);
  }
}

TEST_CASE("a time limit sends SIGTERM one minute before its end") {
  Options options;
  options.time_limit = 2h;
  const DeadlineSpec deadline = plan_deadline(options, train_host(), 30s)->value();
  CHECK(deadline.limit == 2h);
  CHECK(deadline.signal_before == 60s);
  CHECK(deadline.signal == SIGTERM);
  CHECK(deadline.slurm_job.empty());
}

TEST_CASE(
    "a signal without a deadline, too short a notice or limit and a requeue outside Slurm are "
    "rejected") {
  Options options;
  options.signal_before = SignalBefore{90s, SIGUSR1};
  CHECK_THAT(error_of(options, train_host()), ContainsSubstring("--time-limit"));
  options.signal_before->time = 30s;
  CHECK_THAT(error_of(options, in_slurm()), ContainsSubstring("--shutdown-timeout (30s)"));
  options = {};
  options.time_limit = 60s;
  CHECK_THAT(error_of(options, train_host()),
             ContainsSubstring("--time-limit=1m: workers get SIGTERM 1m before it"));
  options = {};
  options.time_limit = 1h;
  options.requeue = true;
  CHECK_THAT(error_of(options, train_host()), ContainsSubstring("SLURM_JOB_ID"));
}

namespace agent {

TEST_CASE("the signal and stop times are before the end, on the steady clock") {
  const std::chrono::steady_clock::time_point now{5h};
  const WallTime wall_now{std::chrono::seconds(1'000'000)};
  const DeadlineSpec spec{.signal_before = 60s, .signal = SIGUSR1, .reason = "its time limit ends"};
  const rendezvous::JobDeadline deadline = job_deadline(spec, wall_now + 100s, wall_now, now, 30s);
  CHECK(deadline.signal_at == now + 40s);
  CHECK(deadline.stop_at == now + 68s);
  CHECK(deadline.signal == SIGUSR1);
  CHECK(deadline.reason == "its time limit ends");
  CHECK(job_deadline(spec, wall_now + 24h * 999'999, wall_now, now, 30s).stop_at >
        now + 24h * 3650);
}

TEST_CASE("the end time of a Slurm job is parsed from scontrol output") {
  const auto end =
      end_time_of("JobId=7 StartTime=2026-11-25T17:00:00 EndTime=2026-11-25T18:30:05 Deadline=N/A");
  REQUIRE(end);
  const std::time_t seconds = std::chrono::system_clock::to_time_t(*end);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  CHECK(parts.tm_mday == 25);
  CHECK(parts.tm_hour == 18);
  CHECK(parts.tm_min == 30);
  CHECK(parts.tm_sec == 5);
  for (const char* other : {"", "JobId=7 EndTime=Unknown Deadline=N/A", " EndTime=2026-11-25",
                            " EndTime=", "slurm_load_jobs error: Invalid job id specified"})
    CHECK_FALSE(end_time_of(other));
}

}  // namespace agent
}  // namespace drun

#include "launcher/report/timeline_views.h"

#include <cerrno>
#include <csignal>
#include <nlohmann/json.hpp>

#include "agent/diagnosis/error_text.h"
#include "launcher/report/report.h"
#include "tests/support/catch.h"
#include "tests/support/job_events.h"
#include "tests/support/messages.h"

namespace drun {
namespace {

using nlohmann::json;

Failure failure_with(int rank, ExitStatus status, std::vector<std::string> stderr_tail = {}) {
  Failure failure;
  failure.rank = rank;
  failure.host = "gpu0";
  failure.pid = 100 + rank;
  failure.status = std::move(status);
  failure.time = test::kSomeTime;
  failure.program = "./train";
  failure.stderr_tail = std::move(stderr_tail);
  return failure;
}

Outcome failed_with(std::vector<Failure> failures) {
  Outcome outcome;
  outcome.ending = WorkersFailed{std::move(failures)};
  outcome.run_id = "none";
  outcome.node_count = 1;
  outcome.world_size = 4;
  outcome.duration = std::chrono::minutes(1);
  return outcome;
}

Outcome out_of_gpu_memory() {
  return failed_with({failure_with(
      2, Exited{1}, {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"})});
}

timeline::Job job_with(timeline::TimedFailure failure) {
  timeline::Job job;
  job.outcome = "failed";
  job.world_size = 4;
  job.node_count = 1;
  job.wall_s = 60;
  job.root_cause = failure;
  job.failures = {std::move(failure)};
  job.rounds = {{.world_size = 4, .begin_s = 1, .end_s = 59}};
  return job;
}

}  // namespace

TEST_CASE("the text report has two lines for a cause that the headline does not show") {
  const std::string text = report_text(out_of_gpu_memory(), {});
  CHECK_THAT(text, ContainsSubstring("  cause      rank 2 ran out of GPU memory\n"
                                     "             a restart does not help; use a smaller batch"));
}

TEST_CASE("the text report has no cause for a plain crash") {
  const std::string text =
      report_text(failed_with({failure_with(1, Exited{3}, {"bad batch"})}), {});
  CHECK(text.find("  cause") == text.npos);
}

TEST_CASE("control characters of a cause do not reach the terminal") {
  Failure failure = failure_with(0, Exited{1});
  failure.stderr_tail = {
      "  File \"/x/\x1b[2Jtrain.py\", line 3, in step",
      "  File \"/v/torch/distributed/distributed_c10d.py\", line 9, in all_reduce",
      "RuntimeError: Timed out waiting 6000ms for recv operation to complete"};
  Failure other = failure;
  other.rank = 1;
  other.stderr_tail[0] = "  File \"/x/b.py\", line 4, in step";
  const std::string text = report_text(failed_with({failure, other}), {});
  CHECK_THAT(text, ContainsSubstring("  cause      desync: "));
  CHECK(text.find('\x1b') == text.npos);
}

TEST_CASE("the JSON report has the diagnosis, or null after success") {
  const json report = json::parse(report_json(out_of_gpu_memory(), 1));
  const json& diagnosis = report.at("diagnosis");
  CHECK(diagnosis.at("class") == "gpu_memory");
  CHECK(diagnosis.at("ranks") == json::parse("[[2, 2]]"));
  CHECK(diagnosis.at("exclude_node").is_null());
  CHECK(diagnosis.at("restart_helps") == "no");
  CHECK(diagnosis.at("summary") == "rank 2 ran out of GPU memory");
  CHECK(diagnosis.at("evidence").size() == 2);
  CHECK(diagnosis.at("advice").get<std::string>().starts_with("use a smaller batch"));
  CHECK(json::parse(report_json(Outcome{}, 0)).at("diagnosis").is_null());
}

TEST_CASE("bytes of a diagnosis that are not UTF-8 become U+FFFD in JSON") {
  const json report =
      json::parse(report_json(failed_with({failure_with(0, Exited{1}, {"\xff\xfe"})}), 1));
  CHECK(report.at("diagnosis").at("evidence").at(0) == "rank 0: \xef\xbf\xbd\xef\xbf\xbd");
}

TEST_CASE("the JUnit report has the diagnosis as properties and in the job's failure") {
  const std::string xml = report_junit(out_of_gpu_memory(), 1, "text");
  CHECK_THAT(xml, ContainsSubstring("<property name=\"diagnosis\" value=\"gpu_memory\"/>"));
  CHECK_THAT(xml, ContainsSubstring("cause: out of memory on a GPU: rank 2 ran out"));
  CHECK_THAT(xml, ContainsSubstring("evidence: rank 2: torch.OutOfMemoryError: CUDA out of"));
}

TEST_CASE("the page and its text form show the diagnosis of the events") {
  const timeline::Job job = job_with(
      {failure_with(1, Exited{1}, {"RuntimeError: CUDA error: uncorrectable ECC error <b>"})});
  const std::string page = report_html(job);
  CHECK_THAT(page, ContainsSubstring("<dt>Diagnosis</dt><dd>hardware: hardware error on node 0"));
  CHECK_THAT(page, ContainsSubstring("uncorrectable ECC error &lt;b&gt;"));
  const std::string text = report_text(job, {.columns = 100});
  CHECK_THAT(text, ContainsSubstring("  diagnosis  hardware: hardware error on node 0 (rank 1)\n"));
  CHECK_THAT(text, ContainsSubstring("  advice     a restart can help; exclude the node"));
}

TEST_CASE("a job that is known from events gets the same class as from its outcome") {
  struct Ended {
    const char* ended;
    int exit_code;
    agent::FaultClass fault;
  };
  using agent::FaultClass;
  for (const Ended& each : {Ended{"exit code 3", 3, FaultClass::Crash},
                            Ended{"signal 7 (SIGBUS, bus error)", 135, FaultClass::Hardware},
                            Ended{"signal 11 (SIGSEGV, x), core dumped", 139, FaultClass::Crash},
                            Ended{"not started: permission denied", 126, FaultClass::UserError},
                            Ended{"hung: no output for 60 s", 123, FaultClass::Hang}}) {
    INFO(each.ended);
    timeline::Builder builder;
    builder.take(R"({"time":"2026-11-21T13:03:07.1Z","event":"job_ended","outcome":"failed",)"
                 R"("failures":[{"exit_code":)" +
                 std::to_string(each.exit_code) + R"(,"ended":")" + each.ended + "\"}]}");
    const std::optional<timeline::Job> job = builder.build();
    REQUIRE(job.has_value());
    CHECK(to_string(job->root_cause->status).starts_with(std::string(each.ended).substr(0, 8)));
    CHECK(diagnosis_of(*job).fault == each.fault);
  }
  timeline::Job lost;
  lost.outcome = "node_lost";
  lost.message = "node 1 (gpu1) was lost: no heartbeat for 10 s";
  CHECK(diagnosis_of(lost).fault == FaultClass::Network);
  CHECK(diagnosis_of(lost).exclude_node == 1);
  lost.message = "something else";
  CHECK(diagnosis_of(lost).fault == FaultClass::Network);
  timeline::Job good;
  good.outcome = "succeeded";
  CHECK(diagnosis_of(good).fault == FaultClass::None);
}

timeline::Job job_of_events(const Outcome& outcome) {
  test::AgentEvents events("gpu0", 10);
  events.add(0, agent::AgentStarted{});
  events.add(60, agent::JobEnded{outcome});
  timeline::Builder builder;
  builder.take(events.text());
  return builder.build().value();
}

TEST_CASE("the page names the same cause as the other reports") {
  std::vector<Failure> failures;
  for (int rank = 0; rank < 6; ++rank)
    failures.push_back(
        failure_with(rank, Exited{1}, {"RuntimeError: Connection closed by peer [10.0.0.2]:5"}));
  failures.push_back(failure_with(6, Exited{3}, {"ValueError: bad batch"}));
  Failure injected = failure_with(2, Killed{SIGKILL});
  injected.injected = "kill:rank=2";
  Failure with_stacks = failure_with(0, Exited{1}, {"RuntimeError: Timed out waiting 9ms for x"});
  with_stacks.traceback = agent::with_stacks(
      std::string(9000, 'x'), "rank 1: last ended all_reduce #6, not in one (/proc)\n");
  for (const Outcome& outcome :
       {failed_with(failures), failed_with({injected}), failed_with({with_stacks})}) {
    const agent::Diagnosis wanted = agent::diagnose(outcome);
    const agent::Diagnosis shown = diagnosis_of(job_of_events(outcome));
    INFO(wanted.summary);
    CHECK(shown == wanted);
    CHECK_THAT(report_html(job_of_events(outcome)), ContainsSubstring(wanted.evidence.front()));
  }
}

TEST_CASE("the page says why a program could not be started") {
  for (const int number : {ENOENT, EACCES, ETXTBSY, E2BIG, EIO}) {
    const Outcome outcome = failed_with({failure_with(0, NotStarted{number})});
    CHECK(job_of_events(outcome).root_cause->status == ExitStatus(NotStarted{number}));
  }
}

TEST_CASE("the stacks of a hang are read from its events") {
  timeline::Builder builder;
  const std::string head =
      R"(,"run_id":"r","host":"gpu0","agent_pid":1,"time":"2026-11-21T13:03:07.1Z","up_s":)";
  std::string lines;
  lines += R"({"event":"round_began","round":0,"world_size":2,"nodes":1,"node_rank":0)" + head +
           "1.0}\n";
  lines += R"x({"event":"hang_found","round":0,"cause":"rank 1 hangs","evidence":[)x"
           R"x("rank 0: in all_reduce #7 (8 bytes) (gdb)",)x"
           R"x("rank 1: last ended all_reduce #6, not in one, no sign of life (gdb)"])x" +
           head + "2.0}\n";
  lines += R"x({"event":"job_ended","outcome":"failed","failures":[{"rank":1,"exit_code":123,)x"
           R"x("ended":"hung: no output for 4 s","traceback":"rank"}])x" +
           head + "3.0}\n";
  builder.take(lines);
  const auto job = builder.build();
  REQUIRE(job.has_value());
  const agent::Diagnosis diagnosis = diagnosis_of(*job);
  CHECK(diagnosis.fault == agent::FaultClass::MissingRank);
  CHECK(diagnosis.summary == "rank 1 has not arrived in all_reduce");
}

}  // namespace drun

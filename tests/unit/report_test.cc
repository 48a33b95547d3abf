#include "launcher/report/report.h"

#include <cerrno>
#include <csignal>

#include "agent/wall_time.h"
#include "launcher/base/words.h"
#include "tests/support/catch.h"
#include "tests/support/messages.h"

namespace drun {
namespace {

using test::kSomeTime;

Failure failure_of(int rank) {
  Failure failure;
  failure.rank = rank;
  failure.local_rank = rank % 4;
  failure.node_rank = rank / 4;
  failure.host = "gpu" + std::to_string(rank / 4);
  failure.pid = 4700 + rank;
  failure.status = Exited{3};
  failure.time = kSomeTime + std::chrono::milliseconds(rank);
  failure.program = "./train";
  return failure;
}

Outcome ended_on_three_nodes(Ending ending) {
  Outcome outcome;
  outcome.ending = std::move(ending);
  outcome.run_id = "none";
  outcome.node_count = 3;
  outcome.world_size = 12;
  outcome.duration = std::chrono::milliseconds(12345);
  return outcome;
}

const ReportStyle kStyle{.columns = 80, .utc_offset = std::chrono::hours(1)};

}  // namespace

TEST_CASE("a successful job prints nothing but slow ranks") {
  CHECK(report_text(ended_on_three_nodes(Succeeded{}), kStyle).empty());
  Outcome slow = ended_on_three_nodes(Succeeded{});
  slow.slow = {test::slow_rank()};
  CHECK(report_text(slow, kStyle) ==
        "  slow       rank 5 on node 1 (b) is 14 % slower than the others: the others wait for it "
        "12 % of the time\n");
}

TEST_CASE("the report has each known fact of the first failure once") {
  Failure root = failure_of(5);
  root.round = 1;
  root.message = "ValueError: bad loss\n  in step 7";
  root.traceback = "Traceback (most recent call last):\n  main()\nValueError: bad loss\n";
  root.stderr_tail = {"step 1/9\rstep 9/9", "\x1b[31mred\x1b[0m"};
  root.error_file = "/tmp/x/1/error.json";
  root.stderr_file = "/tmp/x/1/stderr.log";
  Failure other = failure_of(0);
  other.status = Killed{SIGSEGV, true};
  other.message = "lost\nmore";
  Outcome outcome = ended_on_three_nodes(WorkersFailed{{root, other}});
  outcome.restarts = 1;
  outcome.max_restarts = 3;
  outcome.failures_left_out = 4;
  ReportStyle style = kStyle;
  style.log_directory = "/tmp/x";
  style.report_file = "out.json";
  CHECK(report_text(outcome, style) == R"(
last lines of stderr from rank 5 on node 1 (gpu1):
| step 9/9
| red

drun: job failed after 12.3 s: rank 5 on node 1 (gpu1) exited with code 3
  error      ValueError: bad loss
               in step 7
  traceback  Traceback (most recent call last):
               main()
             ValueError: bad loss
  worker     ./train, pid 4705, local rank 1, failed at 2026-11-21 14:03:07.128 in round 1
  files      /tmp/x/1/error.json
             /tmp/x/1/stderr.log
  others     14:03:07.123  rank 0 on node 0 (gpu0) was killed by signal 11 (SIGSEGV, segmentation fault), core dumped
               lost
             and 4 more
  job        12 workers on 3 nodes, run none, 1 of 3 restarts used
  logs       /tmp/x
  report     out.json
)");
}

TEST_CASE("stderr that the console has already shown is not repeated, except for its last line") {
  Failure root = failure_of(5);
  root.stderr_tail = {"Traceback (most recent call last):", "ValueError: bad loss", " "};
  ReportStyle style = kStyle;
  style.has_shown_stderr = true;
  Outcome outcome = ended_on_three_nodes(WorkersFailed{{root}});
  outcome.run_id = "83f48d4e28e5f60d3b544a9091e51ef6";
  CHECK(report_text(outcome, style) == R"(
drun: job failed after 12.3 s: rank 5 on node 1 (gpu1) exited with code 3
  error      ValueError: bad loss
  worker     ./train, pid 4705, local rank 1, failed at 2026-11-21 14:03:07.128
  job        12 workers on 3 nodes, run 83f48d4e
)");
}

TEST_CASE("the error and the stderr of a rank that failed after its victims are in the report") {
  Failure victim = failure_of(2);
  victim.status = Exited{1};
  victim.stderr_tail = {"RuntimeError: Connection closed by peer [10.0.0.2]:5"};
  Failure cause = failure_of(7);
  cause.stderr_tail = {"ValueError: bad batch"};
  Outcome outcome = ended_on_three_nodes(WorkersFailed{{victim, cause}});
  outcome.run_id = "83f48d4e28e5f60d3b544a9091e51ef6";
  CHECK(report_text(outcome, kStyle) == R"(
last lines of stderr from rank 7 on node 1 (gpu1):
| ValueError: bad batch

drun: job failed after 12.3 s: rank 2 on node 0 (gpu0) exited with code 1
  cause      rank 7: exit code 3
             ValueError: bad batch
             see the last lines of its stderr
  error      RuntimeError: Connection closed by peer [10.0.0.2]:5
  worker     ./train, pid 4702, local rank 2, failed at 2026-11-21 14:03:07.125
  others     14:03:07.130  rank 7 on node 1 (gpu1) exited with code 3
  job        12 workers on 3 nodes, run 83f48d4e
)");
}

TEST_CASE("a long error is cut, between sentences or words") {
  Failure root = failure_of(5);
  const auto shown = [&root] {
    ReportStyle style = kStyle;
    style.has_shown_stderr = true;
    return report_text(ended_on_three_nodes(WorkersFailed{{root}}), style);
  };
  const std::string process = " Process 1437 has 984.00 MiB memory in use.";
  std::string text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 60.00 GiB.";
  for (int i = 0; i < 10; ++i) text += process;
  root.stderr_tail = {text, "[W1127 07:16:17.827281618 ProcessGroupNCCL.cpp:1575] Warning: x"};
  CHECK_THAT(shown(), ContainsSubstring("  error      torch.OutOfMemoryError: CUDA out of memory. "
                                        "Tried to allocate 60.00 GiB." +
                                        process + process + process + " ...\n"));
  root.message = std::string(200, 'x') + " " + std::string(100, 'y');
  CHECK_THAT(shown(), ContainsSubstring("  error      " + std::string(200, 'x') + " ...\n"));
  root.message = std::string(300, 'x');
  CHECK_THAT(shown(), ContainsSubstring("  error      " + std::string(236, 'x') + " ...\n"));
  root.message = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10";
  CHECK_THAT(shown(), ContainsSubstring("\n             8\n             ...\n  worker"));
}

TEST_CASE("a traceback equal to the message is not repeated") {
  Failure root = failure_of(0);
  root.message = root.traceback = "drun::Error: no route";
  const std::string text = report_text(ended_on_three_nodes(WorkersFailed{{root}}), kStyle);
  CHECK_THAT(text, ContainsSubstring("error      drun::Error: no route"));
  CHECK_THAT(text, !ContainsSubstring("traceback"));
}

TEST_CASE("a failure with few known facts has a short report") {
  Failure root = failure_of(0);
  root.host.clear();
  root.program.clear();
  root.pid = 0;
  root.status = NotStarted{ENOENT};
  Outcome outcome = ended_on_three_nodes(WorkersFailed{{root}});
  outcome.node_count = outcome.world_size = 1;
  CHECK(report_text(outcome, kStyle) == R"(
drun: job failed after 12.3 s: rank 0 on node 0 could not be started: no such
file or directory
  error      the program, or the interpreter in its first line, does not exist on that node
  worker     local rank 0, failed at 2026-11-21 14:03:07.123
  job        1 worker on 1 node, run none
)");
  auto& unable = std::get<WorkersFailed>(outcome.ending).failures.front();
  unable.status = NotStarted{EIO};
  unable.message = "cannot write /logs/0: no space left on device";
  CHECK_THAT(report_text(outcome, kStyle),
             ContainsSubstring("rank 0 on node 0 could not be started\n  error      cannot write"));
}

TEST_CASE("an exit status mentions out of memory and kills that drun did not send") {
  Failure failure = failure_of(1);
  failure.status = Killed{SIGKILL, false};
  CHECK(how_it_ended(failure) == "signal 9 (SIGKILL, killed), not sent by drun");
  failure.out_of_memory = true;
  CHECK(how_it_ended(failure) ==
        "out of memory: killed by the kernel (signal 9 (SIGKILL, killed))");
  failure = failure_of(1);
  failure.status = Killed{SIGABRT, false};
  CHECK(how_it_ended(failure) == "signal 6 (SIGABRT, aborted)");
  CHECK(verb_phrase(failure) == "was killed by signal 6 (SIGABRT, aborted)");
}

TEST_CASE("a report of a thousand failures shows the first ones and counts the rest") {
  std::vector<Failure> failures;
  for (int rank = 0; rank < 1000; ++rank) failures.push_back(failure_of(rank));
  const std::string text = report_text(ended_on_three_nodes(WorkersFailed{failures}), kStyle);
  CHECK_THAT(text, ContainsSubstring("rank 16 on"));
  CHECK(text.find("rank 17 on") == text.npos);
  CHECK_THAT(text, ContainsSubstring("and 983 more\n"));
}

TEST_CASE("a stop shows the collectives that had timed out before") {
  ReportStyle style = kStyle;
  style.timeouts = {{{{1, 2}}, "all_reduce (number 21)", kSomeTime}, {{{4, 4}}, "", kSomeTime}};
  const std::string lines =
      "  timeouts   ranks 1, 2 reported a timeout of all_reduce (number 21), the first at "
      "14:03:07.123\n"
      "             rank 4 reported a timeout of a collective at 14:03:07.123\n";
  CHECK(report_text(ended_on_three_nodes(Interrupted{SIGINT, 1, "gpu1"}), style) ==
        "drun: job stopped by SIGINT on node 1 (gpu1) after 12.3 s\n" + lines);
  CHECK(report_text(ended_on_three_nodes(Preempted{"its time limit ends"}), style) ==
        "drun: job preempted after 12.3 s: its time limit ends\n" + lines);
}

TEST_CASE("other outcomes take one or two lines") {
  CHECK(report_text(ended_on_three_nodes(Interrupted{SIGINT, 1, "gpu1"}), kStyle) ==
        "drun: job stopped by SIGINT on node 1 (gpu1) after 12.3 s\n");
  CHECK(report_text(ended_on_three_nodes(NodeLost{2, "gpu2", false, "no heartbeat for 15 s"}),
                    kStyle) ==
        "drun: job failed after 12.3 s: lost node 2 (gpu2): no heartbeat for 15 s\n"
        "  stopped this node's workers; the state of the lost node's is unknown\n");
  CHECK(report_text(ended_on_three_nodes(Preempted{"its time limit ends"}), kStyle) ==
        "drun: job preempted after 12.3 s: its time limit ends\n");
  CHECK_THAT(report_text(ended_on_three_nodes(NodeLost{0, "gpu0", true, ""}), kStyle),
             ContainsSubstring("lost node 0 (gpu0), the coordinator"));
  CHECK(report_text(ended_on_three_nodes(NotRun{{ErrorCode::Timeout, "node 1 is missing"}}),
                    kStyle) == "drun: node 1 is missing\n");
  CHECK_THAT(report_text(ended_on_three_nodes(WorkersFailed{}), kStyle),
             ContainsSubstring("job failed"));
}

TEST_CASE("a usage error names --help under the name that was called") {
  CHECK(error_text("torchrun", {ErrorCode::Usage, "--x: no"}) ==
        "torchrun: --x: no\ntry torchrun --help\n");
  CHECK(error_text("drun", {ErrorCode::System, "no"}) == "drun: no\n");
}

TEST_CASE("the report has color only if the style enables it") {
  const Outcome outcome = ended_on_three_nodes(WorkersFailed{{failure_of(1)}});
  CHECK(report_text(outcome, kStyle).find('\x1b') == std::string::npos);
  ReportStyle style = kStyle;
  style.has_color = true;
  CHECK_THAT(report_text(outcome, style), ContainsSubstring("\x1b[1;31mdrun: job failed"));
}

TEST_CASE("the headline is wrapped to the terminal") {
  ReportStyle style = kStyle;
  style.columns = 40;
  const std::string text =
      report_text(ended_on_three_nodes(NodeLost{2, "gpu2", false, "no heartbeat for 15 s"}), style);
  CHECK(text.substr(0, text.find('\n')) == "drun: job failed after 12.3 s: lost node");
  style.columns = 0;  // not a terminal
  const std::string whole =
      report_text(ended_on_three_nodes(NodeLost{2, "gpu2", false, std::string(100, 'r')}), style);
  CHECK_THAT(whole, StartsWith("drun: job failed after 12.3 s: lost node 2 (gpu2): rrr"));
}

TEST_CASE("workers' text cannot control the terminal") {
  const auto [line, wanted] = GENERATE(table<std::string, std::string>({
      {"plain\ttab \xc3\xa9", "plain\ttab \xc3\xa9"},
      {"\x1b[1;31mred\x1b[0m", "red"},
      {"\x1b]0;title\x07", "\\x1b]0;title\\x07"},
      {"\x1b[2J", "\\x1b[2J"},
      {"\x1b[", "\\x1b["},
      {"10%\r50%\r100%\r", "100%"},
      {"\r", ""},
      {"a\nb",
       "a\\x0a"
       "b"},
      {"\xc2\x9b"
       "31m",
       "\\xc2\\x9b"
       "31m"},
      {"\x7f", "\\x7f"},
      {"\xc2", "\xc2"},
      {"it\xe2\x80\x99s", "it\xe2\x80\x99s"},
      {"\xe2\x80\xae)txt.exe(", "\\xe2\\x80\\xae)txt.exe("},  // turns the direction of text
      {"\xe2\x81\xa6", "\\xe2\\x81\\xa6"},
      {"\xe2\x80", "\xe2\x80"},
  }));
  CHECK(printable(line) == wanted);
}

TEST_CASE("times are shown in local time, and in UTC in JSON") {
  CHECK(date_and_time(kSomeTime, std::chrono::hours(12)) == "2026-11-22 01:03:07.123");
  CHECK(date_and_time(kSomeTime, -std::chrono::hours(14)) == "2026-11-20 23:03:07.123");
  CHECK(utc_time(kSomeTime) == "2026-11-21T13:03:07.123456Z");
  CHECK(utc_time(WallTime{}) == "1970-01-01T00:00:00.000000Z");
}

TEST_CASE("restarts counted in a window may exceed the limit of the window") {
  Outcome outcome = ended_on_three_nodes(WorkersFailed{{failure_of(0)}});
  outcome.max_restarts = 3;
  outcome.restarts = 3;
  CHECK_THAT(report_text(outcome, kStyle), ContainsSubstring(", 3 of 3 restarts used\n"));
  outcome.restarts = 5;
  CHECK_THAT(report_text(outcome, kStyle), ContainsSubstring(", 5 restarts\n"));
}

TEST_CASE("the report names excluded nodes with the reason") {
  Outcome outcome = ended_on_three_nodes(WorkersFailed{{failure_of(0)}});
  outcome.left_out = {{1, "gpu1", 2, "it fails"}};
  CHECK_THAT(report_text(outcome, kStyle),
             ContainsSubstring("\n  excluded   node 1 (gpu1) after round 2: it fails\n"));
}

TEST_CASE("a signal to a node without a rank is reported with its host") {
  CHECK_THAT(report_text(ended_on_three_nodes(Interrupted{15, std::nullopt, "gpu7"}), kStyle),
             ContainsSubstring("job stopped by SIGTERM on host gpu7"));
}

TEST_CASE("durations are short at every size") {
  using std::chrono::milliseconds;
  CHECK(in_words(milliseconds(0)) == "0.000 s");
  CHECK(in_words(milliseconds(9999)) == "9.999 s");
  CHECK(in_words(milliseconds(59999)) == "59.9 s");
  CHECK(in_words(milliseconds(192000)) == "3 min 12 s");
  CHECK(in_words(milliseconds(7500000)) == "2 h 5 min");
  CHECK(in_words(milliseconds(-5)) == "0.000 s");
}

TEST_CASE("the report of a hung rank refers to the stacks") {
  Failure hung = failure_of(7);
  hung.status = Hung{"no output and no CPU time for 60 s, last ended all_reduce #811, not in one"};
  hung.traceback = "ranks 0-6: here\nrank 7: there\n";
  ReportStyle style = kStyle;
  style.columns = 200;
  const std::string text = report_text(ended_on_three_nodes(WorkersFailed{{hung}}), style);
  CHECK_THAT(text, ContainsSubstring("hung: no output and no CPU time for 60 s"));
  CHECK_THAT(text, ContainsSubstring("stacks     of all ranks"));
  CHECK(text.find("rank 7: there") == std::string::npos);
}

}  // namespace drun

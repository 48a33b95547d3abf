#include "launcher/report/timeline.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "agent/diagnosis/error_text.h"
#include "launcher/report/timeline_views.h"
#include "tests/support/catch.h"
#include "tests/support/job_events.h"

namespace drun::timeline {
namespace {

using agent::index_of;
using test::AgentEvents;
using test::events_of;
using test::ModelJob;

Job job_of(const std::string& lines, const Builder::Now& now = {}) {
  Builder builder;
  builder.take(lines);
  std::optional<Job> job = builder.build(now);
  REQUIRE(job.has_value());
  return *std::move(job);
}

bool is_close(double a, double b, double within) { return std::abs(a - b) <= within; }

void check_sums(const Job& job) {
  const double sum = std::accumulate(job.ledger.begin(), job.ledger.end(), 0.0);
  CAPTURE(sum, job.wall_s);
  CHECK(is_close(sum, job.wall_s, 0.01 * job.wall_s));
}

bool has_mark(const Job& job, MarkKind kind) {
  return std::any_of(job.marks.begin(), job.marks.end(),
                     [kind](const Mark& mark) { return mark.kind == kind; });
}

bool has_note(const Job& job, const std::string& words) {
  return std::any_of(job.notes.begin(), job.notes.end(),
                     [&words](const std::string& note) { return note.find(words) != note.npos; });
}

}  // namespace

TEST_CASE("the timeline of a failed job has its root cause, rounds, ranks and phases") {
  const Job job = job_of(events_of({.nodes = 2, .ranks_per_node = 2, .rounds = 2}));
  CHECK(job.outcome == "failed");
  CHECK(job.run_id == "night");
  CHECK(job.restarts == 1);
  CHECK(job.world_size == 4);
  CHECK(job.node_count == 2);
  CHECK(is_close(job.wall_s, 20, 0.001));
  CHECK(job.drun_version == "1.2");
  REQUIRE(job.root_cause.has_value());
  CHECK(job.root_cause->rank == 1);
  CHECK(job.root_cause->status == ExitStatus(Exited{3}));
  CHECK(job.root_cause->stderr_tail.back() == "ValueError: bad batch");
  CHECK(is_close(job.root_cause->at_s, 19.5, 0.001));
  REQUIRE(job.rounds.size() == 2);
  CHECK(is_close(job.rounds[1].begin_s, 11, 0.001));
  CHECK(job.rounds[0].reason == "rank 1 failed: exit code 3");
  REQUIRE(job.nodes.size() == 2);
  const Node& node = job.nodes[0];
  REQUIRE(node.ranks.size() == 2);
  CHECK(node.ranks[1].has_failed);
  CHECK(node.earlier_failures.size() == 1);
  CHECK(node.ranks[0].stopped_by_drun);
  CHECK(node.ranks[0].peak_memory_bytes == std::uint64_t{3} << 20);
  CHECK(is_close(node.totals[index_of(Phase::Start)], 4, 0.001));
  CHECK(is_close(node.totals[index_of(Phase::Running)], 12, 0.001));
  CHECK(is_close(node.totals[index_of(Phase::Restarting)], 1, 0.001));
  CHECK(has_mark(job, MarkKind::Failure));
  CHECK(job.notes.empty());
  check_sums(job);
}

TEST_CASE("phases sum to the wall time for any job") {
  for (const int nodes : {1, 3, 17})
    for (const int rounds : {1, 2, 9})
      for (const bool fails : {false, true})
        for (const bool is_cut_short : {false, true})
          check_sums(job_of(events_of({.nodes = nodes,
                                       .ranks_per_node = 4,
                                       .rounds = rounds,
                                       .fails = fails,
                                       .is_cut_short = is_cut_short})));
}

TEST_CASE("phases sum to the wall time if lines are missing or truncated") {
  std::mt19937 random(11);
  const std::string whole = events_of({.nodes = 3, .ranks_per_node = 2, .rounds = 3});
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < whole.size();) {
    const std::size_t end = whole.find('\n', at) + 1;
    lines.push_back(whole.substr(at, end - at));
    at = end;
  }
  for (int turn = 0; turn < 300; ++turn) {
    std::string text;
    for (const std::string& line : lines) {
      const auto dice = random() % 20;
      if (dice == 0) continue;
      text += dice == 1 ? line.substr(0, random() % line.size()) + "\n" : line;
    }
    Builder builder;
    builder.take(text);
    const std::optional<Job> job = builder.build();
    REQUIRE(job.has_value());
    check_sums(*job);
    CHECK_FALSE(report_text(*job, {}).empty());
  }
}

TEST_CASE("clocks of different nodes are aligned by their shared rounds") {
  std::string text;
  for (int node = 0; node < 2; ++node) {
    AgentEvents events("gpu" + std::to_string(node), 10);
    events.set_clock_error(node * 3.0);
    events.add(0, agent::AgentStarted{});
    events.add(5, agent::RoundBegan{World{.run_id = "night",
                                          .node_rank = node,
                                          .node_count = 2,
                                          .world_size = 2,
                                          .master_addr = "gpu0"}});
    events.add(9, agent::JobEnded{Outcome{.run_id = "night"}});
    text += events.text();
  }
  const Job job = job_of(text);
  CHECK(is_close(job.wall_s, 9, 0.001));
  CHECK(is_close(job.nodes[1].begin_s, 0, 0.001));
  CHECK(is_close(job.rounds[0].begin_s, 5, 0.001));
}

TEST_CASE("a job that was killed has an unknown outcome and a note") {
  const std::string text = events_of({.rounds = 2, .is_cut_short = true});
  const Job job = job_of(text + R"({"time":"2026-11-)");
  CHECK(job.outcome == "unknown");
  CHECK(job.rounds.size() == 2);
  CHECK_FALSE(job.rounds[1].has_ended);
  CHECK(has_note(job, "the events of 2 of 2 nodes end before the end of the job"));
  CHECK(has_note(job, "1 line is not an event"));
  CHECK_FALSE(job.root_cause.has_value());  // no failure is known in its last round
  CHECK(job.rounds[0].failure.has_value());
}

TEST_CASE("a running job lasts until now") {
  const std::string text = events_of({.is_cut_short = true});
  const double began = static_cast<double>(test::kSomeTime.time_since_epoch().count()) / 1e6;
  const Job job =
      job_of(text, {.since_epoch_s = began + 60, .is_running = [](std::string_view host, int pid) {
                      return host == "gpu0" && pid == 10;
                    }});
  CHECK(job.outcome == "running");
  CHECK(is_close(job.wall_s, 60, 0.01));
  CHECK(job.nodes[0].is_running);
  CHECK_FALSE(job.nodes[1].is_running);
  check_sums(job);
}

TEST_CASE("with several jobs in the same files the last one is shown") {
  const std::string night = events_of({});
  std::string day = night;
  for (std::size_t at = 0; (at = day.find("\"night\"", at)) != day.npos;)
    day.replace(at, 7, "\"day\"");
  for (std::size_t at = 0; (at = day.find("2026-", at)) != day.npos;) day.replace(at, 5, "2027-");
  const Job job = job_of(day + night);
  CHECK(job.run_id == "day");
  CHECK(job.other_jobs == 1);
  CHECK(has_note(job, "1 other job"));
}

namespace {

std::string agent_of(const std::string& host, int pid, double begin_s, double end_s,
                     const Outcome& outcome) {
  AgentEvents events(host, pid, begin_s);
  events.add(begin_s, agent::AgentStarted{});
  events.add(begin_s + 1,
             agent::RoundBegan{World{.run_id = "night", .world_size = 2, .master_addr = "gpu0"}});
  events.add(end_s, agent::JobEnded{outcome});
  return events.text();
}

}  // namespace

TEST_CASE("a job that is started again at once is shown without the job before") {
  std::string text;
  for (const std::string host : {"gpu0", "gpu1"}) {
    text += agent_of(host, 10, 0, 3, {.ending = Interrupted{}, .run_id = "night"});
    text += agent_of(host, 20, 4, 6, {.ending = Succeeded{}, .run_id = "night"});
  }
  const Job job = job_of(text);
  CHECK(job.outcome == "succeeded");
  CHECK(job.nodes.size() == 2);
  CHECK(is_close(job.wall_s, 2, 0.001));
  CHECK(job.other_jobs == 1);
}

TEST_CASE(
    "an agent that is started again during a job belongs to the job, and so does the first one") {
  const Outcome outcome{.ending = Succeeded{}, .run_id = "night"};
  const Job job =
      job_of(agent_of("gpu0", 10, 0, 30, outcome) + agent_of("gpu1", 11, 0.1, 3, outcome) +
             agent_of("gpu1", 12, 20, 30, outcome));
  CHECK(job.nodes.size() == 3);
  CHECK(job.other_jobs == 0);
}

TEST_CASE("lines that are not events are counted and ignored") {
  for (const std::string line :
       {"", "{", "[]", "null", "7", "{}", R"({"time":7,"event":"phase"})",
        R"({"time":"2026-11-21T13:03:07Z"})", R"({"event":"phase"})",
        R"({"time":"9999-99-99T99:99:99Z","event":"phase"})", "\xff\xfe"}) {
    Builder builder;
    builder.take(line + "\n");
    CAPTURE(line);
    CHECK_FALSE(builder.build().has_value());
  }
  const Job job = job_of(
      R"({"time":"2026-11-21T13:03:07Z","event":"round_began","round":-5,"nodes":1e300,"world_size":"x"})"
      "\n"
      R"({"time":"2026-11-21T13:03:07Z","event":"worker_started","rank":1e99,"local_rank":-1,"pid":[]})"
      "\n"
      R"({"time":"2026-11-21T13:03:08Z","event":"phase","phase":"dreaming","up_s":-1e308})"
      "\n");
  CHECK(job.rounds.size() == 1);
  check_sums(job);
}

TEST_CASE("lost nodes, elections, signals, preemptions and injected faults become marks") {
  AgentEvents events("gpu0", 10);
  events.add(0, agent::AgentStarted{});
  events.add(0, agent::CoordinatorJoined{1});
  events.add(1, agent::RoundBegan{World{
                    .run_id = "night", .node_count = 2, .world_size = 2, .master_addr = "gpu0"}});
  events.add(4, agent::CoordinatorJoined{2});
  const InjectedFault fault{
      .fault = "kill:node=1@4s", .node_rank = 1, .host = "gpu1", .round = 0, .followed = {}};
  events.add(5, agent::FaultInjectedAnywhere{fault});
  events.add(5.1, agent::FaultInjectedAnywhere{fault});  // reported by another node
  events.add(5, agent::RoundStopping{0, "lost node 1 (gpu1): the connection closed"});
  events.add(6, agent::RoundEnded{.round = 0});
  events.add(7, agent::RoundBegan{World{.run_id = "night", .round = 1, .master_addr = "gpu0"}});
  events.add(8, agent::SignalCame{15});
  events.add(9, agent::RoundStopping{1, "the time limit"});
  const std::vector<agent::ReportedTimeout> timeouts{
      {.ranks = {{0, 1}}, .call = "all_reduce (number 21)", .first = WallTime()}};
  events.add(10, agent::JobEnded{Outcome{.ending = Preempted{"its time limit"}}, timeouts});
  const Job job = job_of(events.text());
  CHECK(job.outcome == "preempted");
  CHECK(job.message == "its time limit");
  for (const MarkKind kind :
       {MarkKind::NodeLost, MarkKind::Election, MarkKind::Signal, MarkKind::Preemption})
    CHECK(has_mark(job, kind));
  std::vector<std::string> injected;
  std::vector<std::string> timed_out;
  for (const Mark& mark : job.marks) {
    if (mark.kind == MarkKind::Fault) injected.push_back(mark.text);
    if (mark.kind == MarkKind::Timeout) timed_out.push_back(mark.text);
  }
  CHECK(timed_out ==
        std::vector<std::string>{"ranks 0, 1 reported a timeout of all_reduce (number 21)"});
  CHECK(injected == std::vector<std::string>{"kill:node=1@4s on node 1 (gpu1), in round 0"});
  CHECK(std::is_sorted(job.marks.begin(), job.marks.end(),
                       [](const Mark& a, const Mark& b) { return a.at_s < b.at_s; }));
}

TEST_CASE("slow ranks and late nodes are named, and nodes of equal speed are not") {
  CHECK(job_of(events_of({.nodes = 4})).slow.empty());
  std::string text = events_of({.nodes = 3, .ranks_per_node = 1, .failing_rank = 0});
  AgentEvents late("gpu3", 13, 0.9);
  late.add(0.9, agent::AgentStarted{});
  late.add(1, agent::RoundBegan{World{.run_id = "night",
                                      .node_rank = 3,
                                      .node_count = 4,
                                      .base_rank = 3,
                                      .master_addr = "gpu0"}});
  late.add(1.5, agent::WorkerStarted{0, 3, 0, 7});
  late.add(8.5, agent::WorkerAlive{0, 3, 0});
  late.add(9, agent::JobEnded{Outcome{.ending = WorkersFailed{{Failure{}}}}});
  const Job job = job_of(text + late.text());
  REQUIRE(job.slow.size() == 1);
  CHECK(job.slow[0].kind == SlowKind::Start);
  CHECK(job.slow[0].who == "rank 3 on node 3 (gpu3)");
  CHECK(is_close(job.slow[0].seconds, 7, 0.001));
  CHECK(is_close(job.slow[0].median_s, 2, 0.001));
}

TEST_CASE("of a long traceback, the last frames and what follows them are in the events") {
  Failure failure;
  failure.traceback = "Traceback (most recent call last):\n";
  for (int i = 0; i < 400; ++i)
    failure.traceback += "  File \"/x/train.py\", line " + std::to_string(i) + ", in step\n";
  failure.traceback += "RecursionError: too deep\n";
  failure.traceback = agent::with_stacks(failure.traceback, "rank 1: in all_reduce\n");
  AgentEvents agent("gpu0", 11);
  agent.add(0.9, agent::AgentStarted{});
  agent.add(9, agent::JobEnded{Outcome{.ending = WorkersFailed{{failure}}}});
  const Job job = job_of(agent.text());
  REQUIRE(job.root_cause.has_value());
  const std::string& text = job.root_cause->traceback;
  CHECK_THAT(text, StartsWith("...\n  File ") && EndsWith("rank 1: in all_reduce\n"));
  CHECK_THAT(text, ContainsSubstring("line 399, in step\nRecursionError: too deep\n"));
  CHECK(text.size() <= 8192);
}

TEST_CASE("a slow rank that all nodes report is shown once, with a mark") {
  std::string text = events_of({.nodes = 2});
  for (const int node : {0, 1}) {
    AgentEvents agent("gpu" + std::to_string(node), 10 + node, 0);
    agent.add(5, agent::SlowRankFound{{.rank = 3,
                                       .node_rank = 1,
                                       .host = "gpu1",
                                       .percent = 14,
                                       .evidence = "the others wait for it"}});
    text += agent.text();
  }
  const Job job = job_of(text);
  REQUIRE(job.slow.size() == 1);
  CHECK(job.slow[0].kind == SlowKind::Speed);
  CHECK(words_of(job.slow[0]) ==
        "rank 3 on node 1 (gpu1) is 14 % slower than the others: the others wait for it");
  CHECK(std::count_if(job.marks.begin(), job.marks.end(),
                      [](const Mark& mark) { return mark.kind == MarkKind::Slow; }) == 1);
}

TEST_CASE("the text report fits its columns and contains the root cause") {
  const Job job = job_of(events_of({.nodes = 64, .ranks_per_node = 8, .rounds = 10}));
  for (const int columns : {40, 80, 200}) {
    const std::string text = report_text(job, {.columns = columns});
    std::size_t longest = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      const std::string line = text.substr(at, end - at);
      const bool is_free = line.starts_with("  | ") || at == 0;
      if (!is_free) longest = std::max(longest, line.size());
      at = end + 1;
    }
    CHECK(longest <= static_cast<std::size_t>(columns));
    CHECK(text.find('\x1b') == text.npos);
    CHECK_THAT(text, ContainsSubstring("rank 1 on node 0 (gpu0) exited with code 3"));
    CHECK_THAT(text, ContainsSubstring("  | ValueError: bad batch"));
    CHECK_THAT(text, ContainsSubstring("and 32 more nodes"));
    CHECK_THAT(text, ContainsSubstring("Where the time went"));
  }
}

TEST_CASE("each position of a bar shows the longest phase in it") {
  const std::vector<Span> spans{
      {Phase::Waiting, 0, 2}, {Phase::Running, 2, 8}, {Phase::Stopping, 8, 10}};
  CHECK(phase_bar(spans, 10, 10, false) == "ww======xx");
  CHECK(phase_bar(spans, 20, 10, false) == "w===x     ");
  CHECK(phase_bar({}, 0, 4, false) == "    ");
  CHECK(phase_bar(spans, 10, 0, false) == "");
}

}  // namespace drun::timeline

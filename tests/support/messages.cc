#include "tests/support/messages.h"

#include "agent/status/node_status.h"
#include "rendezvous/protocol/control_wire.h"

namespace drun::test {

using namespace rendezvous;

Failure full_failure(int rank) {
  Failure failure;
  failure.rank = rank;
  failure.local_rank = rank % 4;
  failure.node_rank = rank / 4;
  failure.round = 2;
  failure.role = "trainer";
  failure.host = "node-\xc3\xa4";
  failure.pid = 4711;
  failure.status = Killed{11, true};
  failure.time = WallTime(std::chrono::microseconds(1'700'000'000'123'456));
  failure.out_of_memory = true;
  failure.program = "./train";
  failure.error_file = "/tmp/x/error.json";
  failure.message = "ValueError: no\nsecond line";
  failure.traceback = "Traceback ...";
  failure.stderr_tail = {"one", "", "three"};
  failure.stderr_file = "/tmp/x/stderr.log";
  return failure;
}

agent::Evidence full_evidence() {
  return {.groups = {{.ranks = {{0, 6}, {8, 63}},
                      .doing = "in all_reduce #812",
                      .arrived = 812,
                      .is_inside = true,
                      .is_quiet = true,
                      .nccl = agent::NcclPosition::Ahead,
                      .source = "gdb",
                      .lines = {"process train", "  thread train", "    poll (libc.so.6)"}},
                     {.ranks = {{7, 7}},
                      .nccl = agent::NcclPosition::Behind,
                      .source = "/proc",
                      .lines = {"\xc3\xa4", ""}}},
          .notes = {"node 3 (d): no answer in 10 s"},
          .ranks_left_out = 4};
}

JobTimes full_times() {
  JobTimesSum sum;
  sum.add(0, {.phases = {Milliseconds(1000), Milliseconds(20), {}, {}, Milliseconds(89'000)},
              .current = drun::Phase::Running,
              .slowest_start = 3,
              .slowest_start_time = Milliseconds(2500)});
  sum.add(1,
          {.phases = {
               Milliseconds(500), Milliseconds(20), {}, Milliseconds(2000), Milliseconds(88'000)}});
  return sum.total();
}

SlowRank slow_rank() {
  return {.rank = 5,
          .node_rank = 1,
          .host = "b",
          .round = 2,
          .percent = 14,
          .evidence = "the others wait for it 12 % of the time",
          .is_slow = false};
}

Census full_census() {
  return {.job = {.endpoint = "10.0.0.1:29500",
                  .phase = JobPhase::Stopping,
                  .min_nodes = 2,
                  .max_nodes = 4,
                  .joined_nodes = 2,
                  .spares = 1,
                  .round = 4,
                  .is_preflight = true,
                  .world_size = 16,
                  .restarts = 2,
                  .restarts_left = 1,
                  .max_restarts = 3,
                  .up = Milliseconds(90'000),
                  .round_up = Milliseconds(250),
                  .last_failure = brief(full_failure(3)),
                  .left_out = {{1, "b", 4, "it fails"}},
                  .times = full_times(),
                  .slow = {slow_rank()}},
          .nodes = {{0, "a", 8, NodePresence::Answered,
                     agent::encode_summary({agent::NodePhase::Running, 7, 1, Milliseconds(91'000)}),
                     Milliseconds(17)},
                    {1, "b", 8, NodePresence::Lost, {}, Milliseconds(4000)},
                    {std::nullopt, "c", 8, NodePresence::Asked, {}, Milliseconds(1)}},
          .nodes_not_listed = 5,
          .missing_ranks = {2, 3}};
}

namespace {

InjectedFault injected_fault() {
  return {.fault = "kill:rank=7@1.5s",
          .time = full_failure(1).time,
          .rank = 7,
          .node_rank = 1,
          .host = "b",
          .round = 3,
          .followed = {}};
}

}  // namespace

std::vector<MemberMessage> member_messages() {
  const AgedFailure aged{full_failure(5), Milliseconds(250)};
  Failure not_started = full_failure(6);
  not_started.status = NotStarted{2};
  Failure hung = full_failure(7);
  hung.status = Hung{"no output and no CPU time for 60 s"};
  return {Hello{"run-1", 3, 4, 8, "trainer", "host-3", 99, 0xFEDCBA9876543210U, true},
          Hello{"", std::nullopt, 1, 1, "", "", 1, 0, false},
          Hello{"run-1",
                std::nullopt,
                4,
                8,
                "trainer",
                "host-3",
                99,
                7,
                false,
                2,
                5,
                true,
                {"10.0.0.5", "fd00::5"},
                Past{.rounds = 3,
                     .node_count = 4,
                     .age = Milliseconds(90'000),
                     .coordinator = "host-0",
                     .restarts = 2,
                     .restart_ages = {Milliseconds(4000), Milliseconds(17)},
                     .records = {{"b at 10.0.0.2", 1, 2, true, 3, 4, "it fails"}, {"c", 0, 1}},
                     .failure = aged,
                     .is_checked = true},
                5,
                true,
                {{"server", 1}, {"trainer", 7}}},
          Failed{2, aged},
          AllReturned{7},
          rendezvous::Stopped{2, {aged, {not_started, Milliseconds(0)}}, 12},
          rendezvous::Stopped{0, {}, 0},
          rendezvous::Stopped{.round = 3, .progress = {.step = 1200, .has_more = true}},
          Signaled{15},
          Ping{},
          Query{7, QueryKind::Log, 9, "9 2 err 70\n"},
          Query{8, QueryKind::Status},
          NodeAnswer{0xFEDCBA9876543210U, agent::encode_evidence(full_evidence())},
          NodeAnswer{1, "half a l\xff"},
          HangSuspected{3,
                        Milliseconds(250),
                        {{.ranks = {{7, 7}}, .pids = {70}, .first = hung},
                         {.ranks = {{8, 15}, {17, 17}}, .pids = {}, .first = hung}}},
          Ballot{.run_id = "run-1",
                 .seats = "a:29400,b:29400,c:29400",
                 .seat = 2,
                 .instance = 0xFEDCBA9876543210U,
                 .number = 77,
                 .kind = BallotKind::Release,
                 .term = 9,
                 .rounds = 4},
          Lines{3, 7, true, false, true, true, true, false, full_failure(1).time, "half a l\xff"},
          Lines{.is_end = true},
          LivenessReply{0xFEDCBA9876543210U},
          FaultInjected{injected_fault()},
          TimesReport{{.phases = {Milliseconds(1), Milliseconds(2), {}, Milliseconds(4)},
                       .current = drun::Phase::Standby,
                       .slowest_start = 3,
                       .slowest_start_time = Milliseconds(2500)}},
          TimesReport{},
          SpeedReport{3,
                      {.window = 7,
                       .length = Milliseconds(10'000),
                       .measure = SpeedMeasure::Steps,
                       .has_progress = true,
                       .amounts = {12, 0, 9},
                       .stolen_permille = 25,
                       .throttled_permille = 300,
                       .is_hot = true}},
          SpeedReport{}};
}

std::vector<CoordinatorMessage> coordinator_messages() {
  const World world{.run_id = "run-1",
                    .round = 4,
                    .restarts = 1,
                    .max_restarts = 3,
                    .node_rank = 2,
                    .node_count = 3,
                    .base_rank = 8,
                    .local_world_size = 4,
                    .world_size = 12,
                    .role = "trainer",
                    .role_base_rank = 8,
                    .role_world_size = 12,
                    .master_addr = "fd00::1",
                    .master_port = 29500,
                    .use_agent_store = false,
                    .is_preflight = true};
  World of_programs = world;
  of_programs.roles = {{"server", 1, 0, 2}, {"trainer", 3, 5, 10}};
  Outcome failed{.ending = WorkersFailed{{full_failure(3), full_failure(1)}},
                 .run_id = "run-1",
                 .node_count = 3,
                 .world_size = 12,
                 .restarts = 1,
                 .max_restarts = 3,
                 .failures_left_out = 4,
                 .duration = Milliseconds(123456),
                 .left_out = {{1, "b", 4, "it fails"}, {2, "", 0, ""}},
                 .slow = {slow_rank()}};
  const auto ended = [](Ending ending) {
    Outcome outcome;
    outcome.ending = std::move(ending);
    return Finish{outcome};
  };
  return {Welcome{Milliseconds(15000)},
          Welcome{Milliseconds(15000), 3, std::size_t{1} << 20},
          LinesTaken{4711},
          Waiting{5, 2, {{0, "a"}, {4, "b"}}, {1, 2, 3}},
          Waiting{5, 2, {{0, "a"}}, {}, 2, true, Milliseconds(250)},
          Refused{{ErrorCode::Refused, "no"}},
          WorldReady{world},
          WorldReady{of_programs},
          Stop{1, "rank 3 failed"},
          Stop{1, "its time limit ends", StopNotice{10, Milliseconds(28'000)}},
          Finish{failed},
          Finish{{.times = full_times()}},
          ended(Succeeded{}),
          ended(Interrupted{2, 1, "b"}),
          ended(Interrupted{2, std::nullopt, "b"}),
          ended(NodeLost{1, "b", true, "its connection closed"}),
          ended(NotRun{{ErrorCode::Timeout, "late"}}),
          ended(Preempted{"its time limit ends"}),
          Pong{},
          NodeQuery{9, QueryKind::Log, "9 2 err 70\n"},
          QueryResult{7, "", encode_census(full_census())},
          QueryResult{8, "too many ask"},
          HangFound{3, "rank 7 on node 0 (a) hung", agent::encode_evidence(full_evidence())},
          NodeLeftOut{{1, "b", 4, "it fails"}},
          SlowFound{slow_rank()},
          SlowFound{},
          Vote{.number = 77,
               .instance = 0xFEDCBA9876543210U,
               .is_granted = true,
               .is_fresh = true,
               .free_in = Milliseconds(250),
               .term = 9,
               .rounds = 4},
          Follow{"host-b", 29400, 9},
          LivenessCheck{0xFEDCBA9876543210U},
          Remember{{{"b at 10.0.0.2", 1, 2, true, 3, 4, "it fails"}, {"c", 0, 1}}, 5},
          FaultInjected{injected_fault()}};
}

}  // namespace drun::test

// Tests the state machine of an agent: each row of its tables, and random walks.
#include "agent/supervise/supervision.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>

#include "tests/sim/seeds.h"
#include "tests/support/catch.h"

namespace drun::agent::supervision {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Names = std::vector<std::string>;

const Error kFullDisk{ErrorCode::System, "no space left on device"};

std::string numbered(const char* word, int number) { return word + (" " + std::to_string(number)); }

std::string name(const Action& action) {
  return std::visit(
      Overloaded{
          [](const OpenStreams&) { return std::string("open"); },
          [](const PrepareWorkers&) { return std::string("prepare"); },
          [](const StopPreparing&) { return std::string("stop preparing"); },
          [](const StartWorkers&) { return std::string("start"); },
          [](const CloseWorkerEnds&) { return std::string("close"); },
          [](const ReportUnable& unable) { return "unable: " + unable.error.message; },
          [](const StopLooking&) { return std::string("stop looking"); },
          [](const AskForStacks&) { return std::string("ask"); },
          [](const ReportFailure& failure) { return numbered("failed", failure.local_rank); },
          [](const StopWorkers& stop) {
            return numbered(stop.notice > milliseconds::zero() ? "notify" : "stop", stop.signal);
          },
          [](const KillWorkers&) { return std::string("kill"); },
          [](const DrainOutput&) { return std::string("drain"); },
          [](const ReadFailures&) { return std::string("read"); },
          [](const CollectProgress&) { return std::string("collect"); },
          [](const StopCollecting&) { return std::string("stop collecting"); },
          [](const FreeGpus&) { return std::string("free"); },
          [](const StopFreeing&) { return std::string("stop freeing"); },
          [](const NoteStop&) { return std::string("note stop"); },
          [](const NoteRoundEnd& end) {
            return std::string(end.has_succeeded ? "note success" : "note end");
          },
          [](const EnterPhase& phase) { return std::string(word_of(phase.phase)); },
          [](const ReportSuccess&) { return std::string("succeeded"); },
          [](const ReportStopped&) { return std::string("stopped"); },
          [](const InterruptJob& interrupt) { return numbered("interrupt", interrupt.signal); },
          [](const FlushOutput&) { return std::string("flush"); },
          [](const DropOutput&) { return std::string("drop"); },
          [](const End&) { return std::string("end"); },
      },
      action);
}

// An agent with a manual clock.
struct Machine {
  State state{.may_restart = true};
  Time now{std::chrono::hours(1)};

  Names operator()(const Event& event) {
    Names names;
    for (const Action& action : step(state, event, now)) names.push_back(name(action));
    return names;
  }
  Names after(milliseconds time, bool is_console_blocked = false) {
    now += time;
    return (*this)(DeadlinePassed{is_console_blocked});
  }
};

// The names of the actions that do not merely stop an operation, which may not be pending.
Names without_stops(const Names& names) {
  Names kept;
  for (const std::string& each : names) {
    if (each != "stop preparing" && each != "stop looking" && each != "stop freeing" &&
        each != "stop collecting")
      kept.push_back(each);
  }
  return kept;
}

const WorldArrived kWorld{.round = 3, .world_size = 4};

// A machine in that stage of round 3. From Draining on, a stop was wanted.
Machine in_stage(Stage stage, const WorldArrived& world = kWorld) {
  Machine machine;
  const Event events[] = {world,          StreamsOpened{3},    Prepared{3},
                          StopWanted{3},  AllGone{},           OutputDrained{},
                          FailuresRead{}, ProgressCollected{}, GpusFreed{}};
  for (const Event& event : events) {
    if (machine.state.stage == stage) break;
    machine(event);
  }
  REQUIRE(machine.state.stage == stage);
  return machine;
}

Machine running(const WorldArrived& world = kWorld) { return in_stage(Stage::Running, world); }

// A machine whose round has succeeded.
Machine succeeded(bool has_kept = false) {
  Machine machine = running();
  machine(AllSucceeded{});
  machine(AllGone{.has_kept = has_kept});
  machine(OutputDrained{});
  machine(FailuresRead{});
  REQUIRE(machine.state.stage == Stage::Over);
  return machine;
}

constexpr Stage kActiveStages[] = {Stage::Opening,  Stage::Preparing, Stage::Running,
                                   Stage::Draining, Stage::Reading,   Stage::Collecting,
                                   Stage::Freeing};

}  // namespace

TEST_CASE("a round opens its streams, prepares, starts the workers, and reports success") {
  Machine machine;
  CHECK(node_phase(machine.state) == NodePhase::Joining);
  CHECK(machine(kWorld) == Names{"open"});
  CHECK(machine(StreamsOpened{3}) == Names{"prepare"});
  CHECK(node_phase(machine.state) == NodePhase::Joining);
  CHECK(machine(Prepared{3}) == Names{"start"});
  CHECK(node_phase(machine.state) == NodePhase::Running);
  CHECK(machine(AllSucceeded{}) == Names{"stop looking"});
  CHECK(machine(AllGone{}) == Names{"drain"});
  CHECK(node_phase(machine.state) == NodePhase::Stopping);
  CHECK(machine(OutputDrained{}) == Names{"read"});
  CHECK(machine(FailuresRead{}) == Names{"note success", "waiting", "succeeded"});
  CHECK(node_phase(machine.state) == NodePhase::Waiting);
  CHECK(machine(OutcomeArrived{.has_succeeded = true}) ==
        Names{"stop preparing", "stop looking", "stop freeing", "stop collecting", "flush"});
  CHECK(machine(OutputFlushed{}) == Names{"end"});
  CHECK_FALSE(deadline(machine.state));
}

TEST_CASE("a failure is reported before anything else, and the progress and GPUs before the end") {
  Machine machine = running();
  CHECK(machine(WorkerFailed{1}) == Names{"failed 1", "stop looking"});
  CHECK(node_phase(machine.state) == NodePhase::Stopping);
  CHECK(machine(WorkerFailed{2}) == Names{"stop looking"});
  CHECK(machine(AllGone{}) == Names{"drain"});
  CHECK(machine(OutputDrained{}) == Names{"read"});
  CHECK(machine(FailuresRead{}) == Names{"collect"});
  CHECK(machine(ProgressCollected{}) == Names{"free"});
  CHECK(machine(GpusFreed{}) == Names{"note end", "restarting", "stopped"});
  CHECK(machine({WorldArrived{.round = 4}}) == Names{"open"});
}

TEST_CASE("a job without restarts does not wait for GPUs, and a preflight not for progress") {
  Machine machine = running();
  machine.state.may_restart = false;
  machine(WorkerFailed{1});
  machine(AllGone{});
  machine(OutputDrained{});
  CHECK(machine(FailuresRead{}) == Names{"collect"});
  CHECK(machine(ProgressCollected{}) == Names{"note end", "restarting", "stopped"});

  Machine preflight = running({.round = 3, .world_size = 4, .is_preflight = true});
  preflight(WorkerFailed{1});
  preflight(AllGone{});
  preflight(OutputDrained{});
  CHECK(preflight(FailuresRead{}) == Names{"note end", "restarting", "stopped"});
}

TEST_CASE("a round that cannot be started here is reported, and the node stays for the next one") {
  Machine streams = in_stage(Stage::Opening);
  CHECK(streams(StreamsOpened{3, kFullDisk}) == Names{"close", "unable: " + kFullDisk.message});
  Machine imports = in_stage(Stage::Preparing);
  CHECK(imports(Prepared{3, kFullDisk}) == Names{"close", "unable: " + kFullDisk.message});
  Machine start = running();
  CHECK(start(StartFailed{kFullDisk}) == Names{"close", "unable: " + kFullDisk.message});
  for (Machine* machine : {&streams, &imports, &start}) {
    CHECK(node_phase(machine->state) == NodePhase::Waiting);
    CHECK((*machine)(StopWanted{3}).empty());  // it is reported
    CHECK((*machine)(WorldArrived{.round = 4}) == Names{"open"});
  }
}

TEST_CASE("answers of another round, and those that nothing waits for, are ignored") {
  Machine opening = in_stage(Stage::Opening);
  CHECK(opening(StreamsOpened{2}).empty());
  CHECK(opening(StreamsOpened{2, kFullDisk}).empty());
  CHECK(opening(Prepared{3}).empty());
  CHECK(opening(StreamsOpened{3}) == Names{"prepare"});
  CHECK(opening(Prepared{2, kFullDisk}).empty());
  CHECK(opening(StopWanted{2}).empty());
  CHECK(opening(Prepared{3}) == Names{"start"});
  const Event late[] = {StreamsOpened{3},    Prepared{3}, OutputDrained{}, FailuresRead{},
                        ProgressCollected{}, GpusFreed{}, OutputFlushed{}};
  for (const Event& event : late) CHECK(opening(event).empty());
}

TEST_CASE("a stop while nothing runs yet starts nothing and is reported once") {
  for (const Stage stage : {Stage::Opening, Stage::Preparing}) {
    for (const bool is_error : {false, true}) {
      Machine machine = in_stage(stage);
      CHECK(without_stops(machine(StopWanted{3})) == Names{"note stop", "stopping"});
      const std::optional<Error> error = is_error ? std::optional(kFullDisk) : std::nullopt;
      const Event next =
          stage == Stage::Opening ? Event(StreamsOpened{3, error}) : Event(Prepared{3, error});
      CHECK(machine(next) == Names{"close", "stopped"});
      CHECK(machine(next).empty());
      CHECK(machine(StopWanted{3}).empty());
    }
  }
}

TEST_CASE("a stop is passed to running workers with its notice, and reported when they are gone") {
  Machine machine = running();
  CHECK(machine(StopWanted{3, SIGUSR1, seconds(30)}) == Names{"stop preparing", "stop looking",
                                                              "note stop", "stopping",
                                                              numbered("notify", SIGUSR1)});
  CHECK(machine(WorkerFailed{1}) == Names{"stop looking"});
  machine(AllGone{});
  machine(OutputDrained{});
  machine(FailuresRead{});
  machine(ProgressCollected{});
  CHECK(machine(GpusFreed{}) == Names{"note end", "restarting", "stopped"});

  Machine plain = running();
  CHECK(without_stops(plain(StopWanted{3})) == Names{"note stop", "stopping", "stop 15"});
}

TEST_CASE("a stop during the end of a successful round makes its report one of a stop") {
  for (const Stage stage : {Stage::Draining, Stage::Reading}) {
    Machine machine = running();
    machine(AllSucceeded{});
    machine(AllGone{});
    if (stage == Stage::Reading) machine(OutputDrained{});
    CHECK(without_stops(machine(StopWanted{3})) == Names{"note stop", "stopping"});
    if (stage == Stage::Draining) machine(OutputDrained{});
    CHECK(machine(FailuresRead{}) == Names{"collect"});
    CHECK(machine(ProgressCollected{}) == Names{"free"});
    CHECK(machine(GpusFreed{}) == Names{"note end", "restarting", "stopped"});
  }
}

TEST_CASE("a stop after success is reported at once, and only once") {
  Machine machine = succeeded();
  CHECK(without_stops(machine(StopWanted{3})) == Names{"note stop", "stopped"});
  CHECK(machine(StopWanted{3}).empty());
}

TEST_CASE("a node with an unkillable process or unfreed GPU memory runs no further round") {
  Machine process = running();
  process(StopWanted{3});
  process(AllGone{.unusable = "pid 7 is left"});
  process(OutputDrained{});
  process(FailuresRead{});
  process(ProgressCollected{});
  process(GpusFreed{"the memory of pid 7 is not free"});
  CHECK(process.state.unusable == "pid 7 is left");  // the first reason
  CHECK(process({WorldArrived{.round = 4}}) == Names{"close", "unable: pid 7 is left"});

  Machine memory = in_stage(Stage::Freeing);
  memory(GpusFreed{"the memory of pid 7 is not free"});
  CHECK(memory({WorldArrived{.round = 4}}) ==
        Names{"close", "unable: the memory of pid 7 is not free"});
}

TEST_CASE("a signal interrupts the job in every stage, and only the first one counts") {
  Machine none;
  CHECK(without_stops(none(TerminateSignal{SIGINT})) == Names{"interrupt 2"});
  for (const Stage stage : kActiveStages) {
    Machine machine = in_stage(stage);
    const Names actions = without_stops(machine(TerminateSignal{SIGINT}));
    if (stage == Stage::Running)
      CHECK(actions == Names{"stop 2", "stopping", "interrupt 2"});
    else
      CHECK(actions == Names{"interrupt 2"});
    CHECK(machine(TerminateSignal{SIGTERM}).empty());
  }
  Machine over = succeeded();
  CHECK(without_stops(over(TerminateSignal{SIGINT})) == Names{"interrupt 2"});
  CHECK(without_stops(over(StopWanted{3})) == Names{"note stop", "stopped"});
}

TEST_CASE("after a signal nothing is collected for a restart, and a late world starts nothing") {
  Machine machine = running();
  machine(TerminateSignal{SIGTERM});
  machine(AllGone{});
  machine(OutputDrained{});
  CHECK(machine(FailuresRead{}) == Names{"note end", "restarting", "stopped"});

  Machine collecting = in_stage(Stage::Collecting);
  collecting(TerminateSignal{SIGTERM});
  CHECK(collecting(ProgressCollected{}) == Names{"note end", "restarting", "stopped"});

  Machine freeing = in_stage(Stage::Freeing);
  const Names actions = freeing(TerminateSignal{SIGTERM});
  CHECK(std::count(actions.begin(), actions.end(), "stop freeing") == 1);
  CHECK(freeing(GpusFreed{}) == Names{"note end", "restarting", "stopped"});

  Machine late;
  late(TerminateSignal{SIGTERM});
  CHECK(late(kWorld) == Names{"open"});
  CHECK(without_stops(late(StopWanted{3})) == Names{"note stop", "stopping"});
  CHECK(late(StreamsOpened{3}) == Names{"close", "stopped"});
}

TEST_CASE("a failure that only waited for others is reported once their stacks show why") {
  Machine machine = running();
  REQUIRE(may_hold(machine.state));
  CHECK(machine(FailureAnnounced{1}).empty());
  CHECK(is_holding(machine.state));
  CHECK_FALSE(may_hold(machine.state));
  CHECK(machine(WorkerFailed{1, FailureKind::Waited}) == Names{"ask"});
  CHECK(deadline(machine.state) == machine.now + kStacksHold);
  CHECK(node_phase(machine.state) == NodePhase::Running);
  CHECK(machine(WorkerFailed{2, FailureKind::Waited}).empty());
  CHECK(machine(WorkerFailed{3, FailureKind::LostPeer}).empty());
  CHECK(machine(StacksArrived{2, StacksShow::AllWaiting}).empty());  // of the round before

  SECTION("every other rank is in a collective") {
    CHECK(machine(StacksArrived{3, StacksShow::AllWaiting}) ==
          Names{"failed 1", "stop looking", "stop 15"});
  }
  SECTION("a rank is outside of one, and may fail with its own error") {
    CHECK(machine(StacksArrived{3, StacksShow::RankOutside}).empty());
    CHECK(deadline(machine.state) == machine.now + kOwnErrorHold);
    SECTION("it does") {
      CHECK(machine(WorkerFailed{0, FailureKind::Own}) ==
            Names{"failed 0", "stop looking", "stop 15"});
    }
    SECTION("it does not") {
      CHECK(machine.after(kOwnErrorHold - milliseconds(1)).empty());
      CHECK(machine.after(milliseconds(1)) == Names{"failed 1", "stop looking", "stop 15"});
    }
  }
  SECTION("a rank is about to end, and its error shows more") {
    const auto until = machine.now + kStacksHold;
    CHECK(machine(StacksArrived{3, StacksShow::RankEnding}).empty());
    CHECK(machine.after(kOwnErrorHold).empty());
    CHECK(deadline(machine.state) == until);
    CHECK(machine(WorkerFailed{0, FailureKind::Waited}).empty());
    CHECK(deadline(machine.state) == machine.now + kOwnErrorHold);
    CHECK(machine.after(kOwnErrorHold) == Names{"failed 1", "stop looking", "stop 15"});
  }
  SECTION("stacks do not prolong the hold") {
    CHECK(machine.after(kStacksHold - seconds(1)).empty());
    CHECK(machine(StacksArrived{3, StacksShow::RankOutside}).empty());
    CHECK(machine.after(seconds(1)) == Names{"failed 1", "stop looking", "stop 15"});
  }
  SECTION("there are no stacks") {
    CHECK(machine.after(kStacksHold - milliseconds(1)).empty());
    CHECK(machine.after(milliseconds(1)) == Names{"failed 1", "stop looking", "stop 15"});
  }
  SECTION("the workers end anyway") {
    CHECK(machine(AllGone{}) == Names{"failed 1", "stop looking", "drain"});
  }
  CHECK_FALSE(is_holding(machine.state));
  CHECK_FALSE(deadline(machine.state));
  CHECK(machine(StacksArrived{3, StacksShow::AllWaiting}).empty());
  CHECK(node_phase(machine.state) == NodePhase::Stopping);
}

TEST_CASE("a failure by a lost peer waits for a moment, without a query") {
  Machine machine = running();
  machine(FailureAnnounced{1});
  CHECK(machine(WorkerFailed{1, FailureKind::LostPeer}).empty());
  CHECK(deadline(machine.state) == machine.now + kPeerHold);
  CHECK(machine.after(kPeerHold) == Names{"failed 1", "stop looking", "stop 15"});
}

TEST_CASE("an error of another worker before the announced failure ends the hold") {
  Machine machine = running();
  machine(FailureAnnounced{1});
  CHECK(machine(WorkerFailed{0, FailureKind::Own}) == Names{"failed 0", "stop looking", "stop 15"});
  CHECK(machine(WorkerFailed{1, FailureKind::Waited}) == Names{"stop looking"});
}

TEST_CASE("a stop or a signal ends a hold without a report of the failure") {
  for (const bool is_announced : {false, true}) {
    Machine stopped = running();
    stopped(FailureAnnounced{1});
    if (!is_announced) stopped(WorkerFailed{1, FailureKind::Waited});
    Machine interrupted = stopped;
    CHECK(without_stops(stopped(StopWanted{3})) == Names{"note stop", "stopping", "stop 15"});
    CHECK(without_stops(interrupted(TerminateSignal{SIGINT})) ==
          Names{"stop 2", "stopping", "interrupt 2"});
    for (Machine* machine : {&stopped, &interrupted}) {
      CHECK_FALSE(deadline(machine->state));
      CHECK((*machine)(WorkerFailed{1, FailureKind::Waited}) == Names{"stop looking"});
    }
  }
}

TEST_CASE("only the first failure of a round with several ranks that nothing stops is held") {
  CHECK_FALSE(may_hold(in_stage(Stage::Preparing).state));
  CHECK_FALSE(may_hold(running({.round = 3, .world_size = 1}).state));
  CHECK_FALSE(may_hold(running({.round = 3, .world_size = 4, .is_preflight = true}).state));
  Machine failed = running();
  failed(WorkerFailed{0});
  CHECK_FALSE(may_hold(failed.state));
  CHECK(failed(FailureAnnounced{1}).empty());
  CHECK_FALSE(is_holding(failed.state));
  Machine stopped = running();
  stopped(StopWanted{3});
  CHECK_FALSE(may_hold(stopped.state));
  Machine interrupted = running();
  interrupted(TerminateSignal{});
  CHECK_FALSE(may_hold(interrupted.state));
  Machine ended = running();
  ended(OutcomeArrived{});
  CHECK_FALSE(may_hold(ended.state));
}

TEST_CASE("kept processes stay if the job succeeds, else they are stopped before the report") {
  Machine good = succeeded(true);
  CHECK(without_stops(good(OutcomeArrived{.has_succeeded = true})) == Names{"flush"});

  Machine bad = succeeded(true);
  CHECK(without_stops(bad(OutcomeArrived{.has_succeeded = false})) == Names{"stop 15"});
  CHECK(bad(AllGone{}) == Names{"drain"});
  CHECK(bad(OutputDrained{}) == Names{"read"});
  CHECK(bad(FailuresRead{}) == Names{"note success", "flush"});

  Machine stopped = succeeded(true);
  CHECK(without_stops(stopped(StopWanted{3})) == Names{"note stop", "stop 15"});
  CHECK(node_phase(stopped.state) == NodePhase::Stopping);
  CHECK(stopped(AllGone{}) == Names{"drain"});
  stopped(OutputDrained{});
  CHECK(stopped(FailuresRead{}) == Names{"collect"});
  stopped(ProgressCollected{});
  CHECK(stopped(GpusFreed{}) == Names{"note end", "restarting", "stopped"});

  Machine meanwhile = running();
  meanwhile(AllSucceeded{});
  meanwhile(AllGone{.has_kept = true});
  meanwhile(TerminateSignal{});
  meanwhile(OutputDrained{});
  CHECK(meanwhile(FailuresRead{}) == Names{"stop 15"});
  CHECK(meanwhile(AllGone{}) == Names{"drain"});

  Machine killed = succeeded(true);
  killed(TerminateSignal{});
  CHECK(killed(KillWanted{}) == Names{"kill"});
  CHECK(without_stops(killed(StopWanted{3})) == Names{"note stop", "stopping", "stop 15"});
  CHECK(killed(AllGone{}) == Names{"drain"});
  killed(OutputDrained{});
  CHECK(killed(FailuresRead{}) == Names{"note end", "restarting", "stopped"});

  Machine at_the_end = succeeded(true);
  at_the_end(OutcomeArrived{.has_succeeded = true});
  at_the_end(TerminateSignal{});
  CHECK(at_the_end(KillWanted{}) == Names{"kill"});
  CHECK(at_the_end(AllGone{}).empty());
  CHECK(at_the_end(OutputFlushed{}) == Names{"end"});
}

TEST_CASE("a signal at the end of the job drops the output that nothing takes") {
  Machine machine = succeeded();
  machine(OutcomeArrived{.has_succeeded = true});
  CHECK(machine.after(seconds(100)).empty());
  CHECK(without_stops(machine(TerminateSignal{SIGTERM})) == Names{"interrupt 15"});
  CHECK(machine.after(kConsolePatience - milliseconds(1)).empty());
  CHECK(machine.after(milliseconds(1)) == Names{"drop"});
  CHECK(machine(OutputFlushed{}) == Names{"end"});
}

TEST_CASE("the agent ends once the outcome is known, no round runs, and its server has finished") {
  Machine none;
  CHECK(without_stops(none(OutcomeArrived{})) == Names{"flush"});
  CHECK(none(OutcomeArrived{}).empty());
  CHECK(none(kWorld).empty());

  Machine server;
  CHECK(server(ServerFinished{}).empty());
  CHECK(without_stops(server(OutcomeArrived{.has_server = true})).empty());
  CHECK(server(OutputFlushed{}).empty());
  CHECK(server(ServerFinished{}) == Names{"flush"});
  CHECK(server(ServerFinished{}).empty());
  CHECK(server(OutputFlushed{}) == Names{"end"});
  CHECK(server(OutputFlushed{}).empty());

  for (const Stage stage : kActiveStages) {
    Machine machine = in_stage(stage);
    const Names actions = without_stops(machine(OutcomeArrived{}));
    CHECK(actions == (stage == Stage::Running ? Names{"stop 15"} : Names{}));
    CHECK(machine(StopWanted{3}).empty());
    Names last;
    const Event rest[] = {StreamsOpened{3}, Prepared{3},         AllGone{},  OutputDrained{},
                          FailuresRead{},   ProgressCollected{}, GpusFreed{}};
    for (const Event& event : rest) {
      const Names now = machine(event);
      if (!now.empty()) last = now;
    }
    REQUIRE(!last.empty());
    CHECK(last.back() == "flush");
    CHECK(std::count(last.begin(), last.end(), "stopped") == 0);
  }
}

TEST_CASE("after a kill, output that the console does not take within a second is dropped") {
  Machine draining = in_stage(Stage::Draining);
  draining(TerminateSignal{});
  CHECK(draining(KillWanted{}) == Names{"kill"});
  CHECK(deadline(draining.state) == draining.now + kConsolePatience);
  CHECK(draining.after(kConsolePatience - milliseconds(1)).empty());
  CHECK(draining.after(milliseconds(1)) == Names{"drop"});
  CHECK_FALSE(deadline(draining.state));

  Machine kept = running();
  kept(AllGone{.has_kept = true});
  kept(TerminateSignal{});
  CHECK(kept(KillWanted{}) == Names{"kill"});
  CHECK(kept.after(kConsolePatience).empty());  // the kept processes may still be there
  kept(AllGone{});
  CHECK(kept.after(kConsolePatience) == Names{"drop"});

  Machine running_now = running();
  running_now(TerminateSignal{});
  CHECK(running_now(KillWanted{}) == Names{"kill"});
  CHECK_FALSE(deadline(running_now.state));  // until the workers are gone
  running_now(AllGone{});
  CHECK(running_now.after(kConsolePatience) == Names{"drop"});

  Machine over = succeeded();
  over(TerminateSignal{});
  over(KillWanted{});
  CHECK(over.after(kConsolePatience, true) == Names{"drop"});

  Machine free = succeeded();
  free(TerminateSignal{});
  free(KillWanted{});
  CHECK(free.after(kConsolePatience).empty());  // other nodes' output may still come
  CHECK(free.after(kConsolePatience).empty());
  free(OutcomeArrived{});
  CHECK(free.after(kConsolePatience) == Names{"drop"});
  CHECK(free(OutputFlushed{}) == Names{"end"});
  CHECK_FALSE(deadline(free.state));
}

namespace {

// A random course of an agent's life: its resources, its coordinator and its user answer in any
// order and at any time. Checks what must hold in every course.
class Walk {
 public:
  Walk(int /*weather*/, std::uint32_t seed) : random_(seed) {
    state_.may_restart = chance(70);
    keeps_ = chance(30);
  }

  void run() {
    for (int i = 0; i < 400 && broken_.empty(); ++i) random_step();
    is_ending_ = true;  // every course can end from here
    for (int i = 0; i < 2'000 && !is_closed_ && broken_.empty(); ++i) random_step();
    require(is_closed_, "the agent does not end");
  }
  const std::string& broken() const { return broken_; }
  std::uint64_t trace_hash() const { return hash_.value(); }
  // What this course contained.
  int rounds() const { return round_; }
  bool has_held() const { return has_held_; }
  bool has_stopped_kept() const { return has_stopped_kept_; }
  bool has_dropped() const { return has_dropped_; }

 private:
  // The member's view of the round (rendezvous/member/member.h).
  enum class Member { Joined, Running, Done, Stopping, Stopped, Ended };

  bool chance(int percent) { return static_cast<int>(random_() % 100) < percent; }
  void require(bool is_true, const std::string& what) {
    if (!is_true && broken_.empty()) broken_ = "step " + std::to_string(steps_) + ": " + what;
  }
  bool is_pending(const char* what) const { return pending_.contains(what); }
  std::optional<Error> maybe_error() {
    return chance(10) ? std::optional(kFullDisk) : std::nullopt;
  }

  void feed(const Event& event) {
    events_.push_back(event);
    if (events_.size() > 1) return;
    for (std::size_t i = 0; i < events_.size(); ++i) {
      hash_.add(events_[i].index());
      for (const Action& action : step(state_, Event(events_[i]), now_)) {
        hash_.add(name(action));
        require(!is_closed_, "an action after the end: " + name(action));
        std::visit([this](const auto& each) { perform(each); }, action);
      }
    }
    events_.clear();
    check_state();
  }

  void check_state() {
    const bool is_active = !is_between_rounds(state_);
    require(!is_holding(state_) || state_.stage == Stage::Running, "a hold without workers");
    for (const std::string& what : pending_)
      require(is_active || what == "flush", "after the round there is still: " + what);
    const bool is_flushing = state_.job == Job::Flushing || state_.job == Job::Closed;
    require(!is_flushing || !is_active, "the end begins during a round");
    require(!deadline(state_) || *deadline(state_) > now_ - std::chrono::hours(1), "old deadline");
  }

  // --- Actions: this node's resources

  void begin(const char* what) {
    require(pending_.insert(what).second, std::string("twice at the same time: ") + what);
  }
  void perform(const OpenStreams&) { begin("open"); }
  void perform(const PrepareWorkers&) { begin("prepare"); }
  void perform(const StopPreparing&) { is_import_cut_ = true; }
  void perform(const StartWorkers&) {
    require(starts_.insert(round_).second, "the workers of a round are started twice");
    require(!is_interrupted_ && !has_outcome_, "workers are started after a signal or the outcome");
    require(!was_stopped_, "workers are started after a stop");
    if (chance(5)) return feed(StartFailed{kFullDisk});
    begin("workers");
    alive_ = 1 + static_cast<int>(random_() % 4);
    next_rank_ = 0;
    is_group_stopping_ = false;
    to_fail_.clear();
  }
  void perform(const CloseWorkerEnds&) {}
  void perform(const StopLooking&) {}
  void perform(const AskForStacks&) { is_asked_ = true; }
  void perform(const StopWorkers&) {
    require(is_pending("workers") || kept_, "a stop without workers");
    if (kept_) has_stopped_kept_ = true, begin("workers");
    kept_ = false;
    is_group_stopping_ = true;
  }
  void perform(const KillWorkers&) {
    // Those that are killed while the output is flushed are not waited for.
    if (std::exchange(kept_, false) && state_.job != Job::Flushing) begin("workers");
    is_group_stopping_ = true;
    alive_ = 0;
  }
  void perform(const DrainOutput&) { begin("drain"); }
  void perform(const ReadFailures&) {
    if (chance(50)) return feed(FailuresRead{});
    begin("read");
  }
  void perform(const CollectProgress&) {
    require(!is_interrupted_ && !has_outcome_, "progress for a restart that cannot follow");
    if (chance(50)) return feed(ProgressCollected{});
    begin("collect");
  }
  void perform(const StopCollecting&) {
    if (pending_.erase("collect") > 0) feed(ProgressCollected{});
  }
  void perform(const FreeGpus&) {
    require(!is_interrupted_ && !has_outcome_, "a wait for GPUs that nothing needs");
    if (chance(50)) return feed(GpusFreed{});
    begin("free");
  }
  void perform(const StopFreeing&) {
    if (pending_.erase("free") > 0) feed(GpusFreed{});
  }
  void perform(const NoteStop&) {}
  void perform(const NoteRoundEnd&) {}
  void perform(const EnterPhase&) {}

  // --- Actions: the coordinator, as the member passes them on

  void check_report(const char* what) {
    require(!has_outcome_, std::string(what) + " after the outcome");
    require(round_ > 0, std::string(what) + " without a round");
  }
  void perform(const ReportFailure&) {
    check_report("a failure");
    require(failed_.insert(round_).second, "two failures are reported in a round");
    require(!is_pending("stop") || member_ != Member::Running, "unexpected member");
    if (member_ == Member::Running) member_ = Member::Stopping;
  }
  void perform(const ReportUnable&) {
    check_report("an unable node");
    require(stopped_.insert(round_).second, "a round is reported as stopped twice");
    member_ = Member::Stopped;
  }
  void perform(const ReportSuccess&) {
    check_report("success");
    require(succeeded_.insert(round_).second, "a round succeeds twice");
    require(!was_stopped_, "success after a stop");
    if (member_ == Member::Running) member_ = Member::Done;
  }
  void perform(const ReportStopped&) {
    check_report("a stop");
    require(stopped_.insert(round_).second, "a round is reported as stopped twice");
    require(!is_pending("workers"), "a report while workers run");
    // Else the member would take it for a failure, and there is none.
    require(member_ != Member::Running, "a stop that nothing has caused");
    member_ = Member::Stopped;
  }
  void perform(const InterruptJob&) {
    require(!std::exchange(is_interrupted_, true), "two interrupts");
    is_interrupted_at_end_ = is_flushed_;
    if (member_ != Member::Running && member_ != Member::Done) return;
    member_ = Member::Stopping;
    is_stop_sent_ = true;
  }
  void perform(const FlushOutput&) {
    require(has_outcome_ && !has_server_, "the end begins too early");
    require(!is_flushed_, "the output is flushed twice");
    is_flushed_ = true;
    begin("flush");
  }
  void perform(const DropOutput&) {
    require(is_killed_ || is_interrupted_at_end_, "output is dropped without a kill");
    require(!is_pending("workers"), "output of running workers is dropped");
    has_dropped_ = true;
  }
  void perform(const End&) {
    require(!is_closed_, "two ends");
    require(pending_.empty(), "an end while an operation is pending");
    is_closed_ = true;
  }

  // --- Events

  void random_step() {
    ++steps_;
    now_ += milliseconds(random_() % 1500);
    if (const auto due = deadline(state_); due && chance(50)) {
      now_ = std::max(now_, *due);
      feed(DeadlinePassed{chance(20)});
      require(deadline(state_) != due, "a deadline that stays");
      return;
    }
    switch (random_() % 8) {
      case 0:
        return coordinator_step();
      case 1:
        if (chance(is_ending_ ? 20 : 2)) return user_step();
        return feed(DeadlinePassed{chance(20)});  // too early, or late
      default:
        return node_step();
    }
  }

  void coordinator_step() {
    // Messages arrive in the order in which they were sent.
    if (std::exchange(is_stop_sent_, false)) return deliver_stop();
    switch (member_) {
      case Member::Joined:
      case Member::Stopped:
        if (is_ending_ || is_interrupted_) return deliver_outcome(false);
        ++round_;
        was_stopped_ = false;
        kept_ = false;
        is_asked_ = false;
        member_ = Member::Running;
        if (chance(3)) is_stop_sent_ = true, member_ = Member::Stopping;
        return feed(WorldArrived{
            .round = round_, .world_size = chance(90) ? 4 : 1, .is_preflight = chance(10)});
      case Member::Running:
        if (!is_ending_ && !chance(10)) return;
        member_ = Member::Stopping;
        is_stop_sent_ = true;
        return;
      case Member::Done:
        if (is_ending_ && chance(50)) return deliver_outcome(true);
        if (!chance(30)) return;
        member_ = Member::Stopping;
        is_stop_sent_ = true;
        return;
      case Member::Stopping:
        return feed(StopWanted{round_ - 1});  // late
      case Member::Ended:
        if (std::exchange(has_server_, false)) feed(ServerFinished{});
        return;
    }
  }
  void deliver_stop() {
    was_stopped_ = true;
    feed(StopWanted{round_, SIGTERM, seconds(chance(20) ? 5 : 0)});
  }
  void deliver_outcome(bool has_succeeded) {
    member_ = Member::Ended;
    has_server_ = chance(30);
    // The actions of this event are the last ones before the outcome.
    const bool serves = has_server_;
    has_outcome_ = true;
    feed(OutcomeArrived{.has_succeeded = has_succeeded, .has_server = serves});
  }

  void user_step() {
    if (is_interrupted_) {
      is_killed_ = true;
      return feed(KillWanted{});
    }
    feed(TerminateSignal{SIGINT});
  }

  void node_step() {
    if (pending_.empty()) return;
    auto chosen = pending_.begin();
    std::advance(chosen, static_cast<long>(random_() % pending_.size()));
    const std::string what = *chosen;
    if (what == "workers") return workers_step();
    pending_.erase(chosen);
    if (what == "open") return feed(StreamsOpened{round_, maybe_error()});
    if (what == "prepare") {
      const bool is_cut = std::exchange(is_import_cut_, false);
      return feed(Prepared{round_, is_cut ? std::nullopt : maybe_error()});
    }
    if (what == "drain") return feed(OutputDrained{});
    if (what == "read") return feed(FailuresRead{});
    if (what == "collect") return feed(ProgressCollected{});
    if (what == "free") return feed(GpusFreed{chance(1) ? "not free" : ""});
    if (what == "flush") return feed(OutputFlushed{});
  }

  // As workers.h calls back: failures in order, then all gone.
  void workers_step() {
    if (is_asked_ && chance(30)) {
      is_asked_ = false;
      return feed(
          StacksArrived{chance(90) ? round_ : round_ - 1, static_cast<StacksShow>(random_() % 3)});
    }
    if (!to_fail_.empty() && chance(70)) {
      const auto [rank, kind] = to_fail_.front();
      to_fail_.erase(to_fail_.begin());
      const bool was_holding = is_holding(state_);
      feed(WorkerFailed{rank, kind});
      if (!was_holding) is_group_stopping_ = true;
      return;
    }
    if (alive_ > 0 && (is_group_stopping_ || chance(30))) {
      --alive_;
      const int rank = next_rank_++;
      if (is_group_stopping_ || chance(50)) return;
      const auto kind = static_cast<FailureKind>(random_() % 3);
      if (kind != FailureKind::Own && may_hold(state_)) {
        has_held_ = true;
        feed(FailureAnnounced{rank});
      } else if (!is_holding(state_)) {
        is_group_stopping_ = true;
      }
      to_fail_.emplace_back(rank, kind);
      return;
    }
    // The group holds its stop until a request or its own limit.
    const bool is_held = is_holding(state_) && !is_group_stopping_;
    if (alive_ > 0 || !to_fail_.empty() || (is_held && !chance(2))) return;
    if (!is_group_stopping_ && chance(50)) feed(AllSucceeded{});
    const bool is_success = state_.condition == Condition(Healthy{}) && !is_group_stopping_;
    pending_.erase("workers");
    kept_ = keeps_ && is_success;
    feed(AllGone{.has_kept = kept_, .unusable = chance(1) ? "a process is left" : ""});
  }

  std::mt19937 random_;
  State state_;
  Time now_{std::chrono::hours(2)};
  test::TraceHash hash_;
  std::vector<Event> events_;
  std::string broken_;
  int steps_ = 0;
  bool is_ending_ = false;
  std::set<std::string> pending_;                        // operations
  std::set<int> starts_, failed_, succeeded_, stopped_;  // rounds
  // The workers.
  int alive_ = 0;
  int next_rank_ = 0;
  bool is_group_stopping_ = false;
  std::vector<std::pair<int, FailureKind>> to_fail_;
  bool keeps_ = false;
  bool kept_ = false;
  bool is_asked_ = false;
  bool is_import_cut_ = false;
  // The job.
  Member member_ = Member::Joined;
  int round_ = 0;
  bool is_stop_sent_ = false;
  bool was_stopped_ = false;
  bool is_interrupted_ = false;
  bool is_interrupted_at_end_ = false;  // when the output was being flushed
  bool is_killed_ = false;
  bool has_outcome_ = false;
  bool has_server_ = false;
  bool is_flushed_ = false;
  bool is_closed_ = false;
  bool has_held_ = false;
  bool has_stopped_kept_ = false;
  bool has_dropped_ = false;
};

}  // namespace

TEST_CASE("whatever happens to an agent, every round has one report, and the job one end") {
  int rounds = 0;
  int held = 0;
  int stopped_kept = 0;
  int dropped = 0;
  for (const std::uint32_t seed : test::seeds(2'000)) {
    const auto walk = test::run_seed<Walk>(0, seed, [](Walk& one) { one.run(); });
    rounds += walk->rounds();
    held += walk->has_held() ? 1 : 0;
    stopped_kept += walk->has_stopped_kept() ? 1 : 0;
    dropped += walk->has_dropped() ? 1 : 0;
  }
  if (test::seeds_are_chosen()) return;
  CHECK(rounds > 4'000);
  CHECK(held > 200);
  CHECK(stopped_kept > 50);
  CHECK(dropped > 50);
}

}  // namespace drun::agent::supervision

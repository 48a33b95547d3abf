// core. State machine of a node's agent: the rounds of its workers, and the end of the job.
//
// Pure: the agent (agent.h) owns all resources, feeds events in, and carries out the returned
// actions in order. An action may cause its event at once; that event is fed in after the remaining
// actions.
//
// A round passes through these stages. Below each: what it waits for.
//
//   Opening -> Preparing -> Running -> Draining -> Reading -> Collecting -> Freeing -> Over
//   files of   imports of   the last   rest of     files of   progress      GPU        a world or
//   streams    --preload    process    the output  failures                 memory     the outcome
//
//   event \ stage    Opening      Preparing   Running        Draining to Freeing   Over, NoRound
//   WorldArrived     assert       assert      assert         assert                Opening 1
//   StreamsOpened    Preparing 2  -           -              -                     -
//   Prepared         -            Running 2   -              -                     -
//   StartFailed      -            -           unable, Over   -                     -
//   worker failures  -            -           see below      -                     -
//   AllSucceeded     -            -           stop looking   -                     -
//   AllGone          -            -           Draining       -                     note
//   OutputDrained .. -            -           -              next stage 3          -
//   StopWanted       Stopping     Stopping    stop workers   Stopping              report 4, 5
//   TerminateSignal  interrupt    interrupt   stop workers,  interrupt             interrupt 8
//                                             interrupt
//   KillWanted 6     kill         kill        kill           kill                  kill 5
//   OutcomeArrived   note         note        stop workers   note                  Flushing 5, 7
//   ServerFinished   note         note        note           note                  Flushing 7
//   OutputFlushed    -            -           -              -                     End if Flushing
//
//   1  If this node cannot run another round: unable, Over. Ignored after the outcome.
//   2  Only for this round. After an error: unable, Over. If a stop, a signal or the outcome came
//      meanwhile, nothing is started: report, Over.
//   3  OutputDrained, FailuresRead, ProgressCollected and GpusFreed, each in its stage. Collecting
//      and Freeing are left out if no restart can follow. At last: report, Over.
//   4  If success was reported. Ignored in NoRound.
//   5  If leftover processes are kept and the job does not succeed, they are stopped: Running.
//   6  Output that the console does not take within kConsolePatience of the last worker is dropped.
//   7  Once the outcome is known and no coordinator runs here.
//   8  While Flushing: output that is not taken within kConsolePatience is dropped.
//   report: success if the condition is Healthy, else stopped; not after the outcome
//   unable: reports the error as a failure of the round, which has stopped
//
// The condition of a round: why it ends. It changes while the workers run, except by a stop.
//
//   event \ condition   Healthy          Announced        Held                  Failed   Stopping
//   FailureAnnounced    Announced        -                -                     -        -
//   WorkerFailed        report, Failed   Held 1; end 2    end 2                 -        -
//   StacksArrived       -                -                end if AllWaiting     -        -
//   deadline            -                -                end                   -        -
//   AllGone             -                assert           report, Failed        -        -
//   StopWanted,         Stopping         Stopping,        Stopping,             Stop-    -
//   TerminateSignal                      no report        no report             ping
//
//   1  of the announced worker      2  of another worker, with the kind Own
//   end: of the hold; reports the failure and stops the other workers, Failed
//
// A failure is held because a collective that times out ends a rank that did nothing wrong: the
// stacks of the ranks that still run show which one it waited for. A rank that loses another one
// may be seen before the other: its agent waits for a moment for the report about that one.
#pragma once

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/status/node_status.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/phase_times.h"

namespace drun::agent::supervision {

using Time = std::chrono::steady_clock::time_point;
using Milliseconds = std::chrono::milliseconds;

// How long a failure is held. For stacks: less than worker_group::Times::hold, and enough for the
// coordinator's limit for stacks and kOwnErrorHold.
inline constexpr std::chrono::seconds kStacksHold{14};
// For a rank that is in no collective: it may just have left one with an error, which shows more
// than its stack. Longer, until a rank has failed, for one that is about to end.
inline constexpr std::chrono::seconds kOwnErrorHold{3};
inline constexpr std::chrono::seconds kPeerHold{1};
// After a kill, or a signal at the end: how long the console may take for the rest of the output.
inline constexpr std::chrono::seconds kConsolePatience{1};

// By the worker's texts so far.
enum class FailureKind {
  Own,
  Waited,   // it failed because a collective took too long
  LostPeer  // it failed because it lost the connection to another rank
};

// The ranks that have not failed, by their stacks.
enum class StacksShow {
  AllWaiting,   // every one is in a collective
  RankOutside,  // one is not
  RankEnding    // one is about to end
};

// --- Events

struct WorldArrived {
  int round = 0;
  int world_size = 1;
  bool is_preflight = false;
};
struct StreamsOpened {
  int round = 0;
  std::optional<Error> error{};
};
struct Prepared {
  int round = 0;
  std::optional<Error> error{};
};
struct StartFailed {
  Error error;
};
// A worker has failed, and WorkerFailed follows. Feed it only if may_hold(), and for a failure that
// is not of the kind Own.
struct FailureAnnounced {
  int local_rank = 0;
};
struct WorkerFailed {
  int local_rank = 0;
  FailureKind kind = FailureKind::Own;  // only used if is_holding()
};
struct StacksArrived {
  int round = 0;
  StacksShow show = StacksShow::RankOutside;
};
struct AllSucceeded {};
struct AllGone {
  bool has_kept = false;   // leftover processes were kept
  std::string unusable{};  // why this node cannot run another round; empty: it can
};
struct OutputDrained {};
struct FailuresRead {};
struct ProgressCollected {};
struct GpusFreed {
  std::string unusable{};  // as in AllGone
};
struct StopWanted {  // by the coordinator, or because it is lost
  int round = 0;
  int signal = SIGTERM;
  Milliseconds notice{0};  // over 0: `signal` is a notice, and the stop follows after this time
};
struct TerminateSignal {  // only the first one counts
  int signal = SIGTERM;
};
struct KillWanted {};  // after a TerminateSignal
struct OutcomeArrived {
  bool has_succeeded = false;  // the job
  bool has_server = false;     // the coordinator runs in this process, until ServerFinished
};
struct ServerFinished {};
struct OutputFlushed {};
struct DeadlinePassed {
  bool is_console_blocked = false;
};
using Event =
    std::variant<WorldArrived, StreamsOpened, Prepared, StartFailed, FailureAnnounced, WorkerFailed,
                 StacksArrived, AllSucceeded, AllGone, OutputDrained, FailuresRead,
                 ProgressCollected, GpusFreed, StopWanted, TerminateSignal, KillWanted,
                 OutcomeArrived, ServerFinished, OutputFlushed, DeadlinePassed>;

// --- Actions, to be carried out in order. Each is followed by the event that is named

struct OpenStreams {};      // StreamsOpened
struct PrepareWorkers {};   // Prepared
struct StopPreparing {};    // ends the wait for imports
struct StartWorkers {};     // StartFailed, or later AllGone
struct CloseWorkerEnds {};  // nothing is started
struct ReportUnable {       // reports a round that could not be started here, as failed and stopped
  Error error;
};
struct StopLooking {};  // at the workers, which end now
struct AskForStacks {};
struct ReportFailure {  // at most once a round
  int local_rank = 0;
};
struct StopWorkers {
  int signal = SIGTERM;
  Milliseconds notice{0};  // as in StopWanted
};
struct KillWorkers {};
struct DrainOutput {};      // OutputDrained
struct ReadFailures {};     // FailuresRead
struct CollectProgress {};  // ProgressCollected
struct StopCollecting {};   // ProgressCollected follows at once
struct FreeGpus {};         // GpusFreed
struct StopFreeing {};      // GpusFreed follows at once
struct NoteStop {};         // in the events: the workers of this node are being stopped
struct NoteRoundEnd {       // in the events
  bool has_succeeded = false;
};
struct EnterPhase {
  Phase phase = Phase::Waiting;
};
struct ReportSuccess {};
struct ReportStopped {};
struct InterruptJob {
  int signal = SIGTERM;
};
struct FlushOutput {};  // OutputFlushed
struct DropOutput {};   // what the console has not taken
struct End {};          // the last action
using Action =
    std::variant<OpenStreams, PrepareWorkers, StopPreparing, StartWorkers, CloseWorkerEnds,
                 ReportUnable, StopLooking, AskForStacks, ReportFailure, StopWorkers, KillWorkers,
                 DrainOutput, ReadFailures, CollectProgress, StopCollecting, FreeGpus, StopFreeing,
                 NoteStop, NoteRoundEnd, EnterPhase, ReportSuccess, ReportStopped, InterruptJob,
                 FlushOutput, DropOutput, End>;

// --- State

enum class Stage {
  NoRound,
  Opening,
  Preparing,
  Running,  // also while kept processes are stopped
  Draining,
  Reading,
  Collecting,
  Freeing,
  Over
};

struct Healthy {
  bool operator==(const Healthy&) const = default;
};
struct Announced {
  int local_rank = 0;
  bool operator==(const Announced&) const = default;
};
struct Held {
  int local_rank = 0;
  Time until{};
  bool is_for_ending = false;  // for the error of a rank that is about to end
  bool operator==(const Held&) const = default;
};
struct Failed {  // the coordinator knows it
  bool operator==(const Failed&) const = default;
};
struct Stopping {
  bool operator==(const Stopping&) const = default;
};
using Condition = std::variant<Healthy, Announced, Held, Failed, Stopping>;

enum class Job {
  Going,
  Succeeded,
  NotSucceeded,
  Flushing,  // nothing runs here any more
  Closed     // every event is ignored
};

enum class Interrupt { None, Terminate, Kill };

struct State {
  bool may_restart = false;  // the job: then the next round needs the GPUs' memory
  WorldArrived world{};      // the latest one
  Stage stage = Stage::NoRound;
  Condition condition = Healthy{};
  bool has_kept = false;   // leftover processes of this round
  std::string unusable{};  // why no further round can run on this node; empty: it can
  Job job = Job::Going;
  Interrupt interrupt = Interrupt::None;
  bool has_server = false;               // once the outcome is known
  std::optional<Time> drop_output_at{};  // after a kill, or a signal at the end
};

std::vector<Action> step(State& state, const Event& event, Time now);

// When the machine needs DeadlinePassed. An early one changes nothing.
std::optional<Time> deadline(const State& state);

// Whether a failure may be held: the first one of a round with several ranks that nothing stops.
bool may_hold(const State& state);
// A failure was announced or is held.
bool is_holding(const State& state);
// No round has begun, or the latest one is over.
bool is_between_rounds(const State& state);
NodePhase node_phase(const State& state);

}  // namespace drun::agent::supervision

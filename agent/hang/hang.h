// core. Which workers show no sign of life: two agreeing signs out of
//   - no output
//   - no CPU time used by it and what runs below it; or hardly any, and all that time asleep in the
//     same place of the kernel
//   - no heartbeat, of a worker that has had one
//   - behind others in NCCL, or not answering there, by each answer of its RAS service
// for as long as the timeout. A worker with a heartbeat is alive in any case, and so is one that
// launches operations of NCCL, or waits for a rank that does.
//
// Shape:   one sample of all workers after the other, a few per timeout; a suspicion is reported
// once,
//          and again each timeout for as long as it lasts.
// Delayed: late samples mean that this process did not run; then the observation starts over.
// Asked:   NCCL's service costs all processes of the job a little. So it is asked only once some
//          worker has shown one sign for half of the timeout, and then four times per timeout; by a
//          job of very many nodes less often. A worker is judged from the second answer about it
//          on.
// Debugger: while drun's debugger stops workers, none is suspected, and that time does not count as
//          silence; activity in it counts.
// Units:   steady-clock points given by the caller.
// Owner:   a value.   Thread: any, one at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/nccl_ras/ras_position.h"

namespace drun::agent::hang {

using Time = std::chrono::steady_clock::time_point;
using Milliseconds = std::chrono::milliseconds;

struct Sample {
  bool is_running = false;                // else nothing is asked of it
  bool is_stopped = false;                // by SIGSTOP, a debugger
  std::optional<std::uint64_t> output{};  // changes when it prints; absent: it is not seen
  std::uint64_t cpu_ticks = 0;            // hundredths of a second, of its whole tree
  std::uint64_t processes = 0;            // changes when processes of the tree come or go
  std::string channel{};        // where in the kernel it sleeps; empty: not known, or awake
  std::uint64_t heartbeat = 0;  // changes when it beats; 0: it never has
};

// What NCCL's answers, one after the other, have said of a worker.
struct Nccl {
  std::uint64_t progress = 0;
  Time heard_at{};
  bool is_heard_twice = false;  // else it is not known yet whether it moves
  std::optional<Time> moved_at{};
  std::optional<Time> behind_at{};  // in all answers since
};

struct Worker {
  Sample last{};
  Time output_at{};
  Time cpu_at{};
  Time channel_at{};
  std::uint64_t channel_ticks = 0;  // CPU time when it went to sleep there
  Time beat_at{};
  std::optional<Nccl> nccl{};
  std::optional<Time> told_at{};
};

struct State {
  Milliseconds timeout{0};
  Milliseconds ask_interval{0};
  std::vector<Worker> workers{};
  Time sampled_at{};
  std::optional<Time> looked_at{};  // since then
  std::optional<Time> asked_at{};
};

struct Suspect {
  int local_rank = 0;
  std::string how{};  // "no output and no CPU time for 60 s"
  bool operator==(const Suspect&) const = default;
};

// How often a worker is looked at.
Milliseconds sample_interval(Milliseconds timeout);

State begin(std::size_t workers, Milliseconds timeout, Time now);

// `samples` by local rank. Returns the workers to report.
std::vector<Suspect> take(State& state, const std::vector<Sample>& samples, Time now);

void begin_look(State& state, Time now);
void end_look(State& state, Time now);

// `nodes`: how many there are that ask.
Milliseconds ask_interval(Milliseconds timeout, int nodes);

// Whether to ask NCCL's service now; the caller then calls note_asked.
bool wants_nccl(const State& state, Time now);
void note_asked(State& state, Time now);
// `standings` by local rank. Workers that it does not know are judged without it.
void hear(State& state, const std::vector<ras::RankPosition>& standings, Time now);

// By the samples so far.
bool is_quiet(const State& state, std::size_t local_rank);

}  // namespace drun::agent::hang

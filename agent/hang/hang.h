// core. Detects workers that hang. A worker is suspected if at least two of these signs agree for
// the whole timeout:
//   - no output
//   - no CPU time used by its process tree; or less than 1 %, all of it while asleep at the same
//     place in the kernel
//   - no heartbeat, if the worker has sent one before
//   - behind other ranks in NCCL, or not responding there, in every answer of NCCL's RAS service
// A worker with a recent heartbeat is never suspected. The same holds for a worker that launches
// NCCL operations or waits for a rank that does.
//
// Sampling:  the caller samples all workers a few times per timeout. A suspicion is reported once,
//            and again after each timeout while it lasts. If a sample is late, this process did
//            not run; the observation then starts over.
// NCCL:      a query costs every process of the job some time. It is therefore sent only once a
//            worker has shown one sign for half the timeout, then four times per timeout (less
//            often in jobs with many nodes). A worker is judged from its second answer on.
// Look:      while drun inspects workers, no worker is suspected, and the time does not count as
//            silence. Activity during that time counts, except what the look itself may cause: CPU
//            time and processes until the worker has answered its request for a dump, then up to
//            0.2 s of CPU time; and output to a file, whose text drun does not see.
// Time:      steady-clock times passed in by the caller.
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
  bool is_running = false;                // false: the other fields are ignored
  bool is_stopped = false;                // by SIGSTOP or a debugger
  std::optional<std::uint64_t> output{};  // changes when it prints; absent: not observed
  bool writes_to_file = false;            // its output is known only by size
  std::uint64_t cpu_ticks = 0;            // in 1/100 s, of its whole process tree
  std::uint64_t processes = 0;            // changes when a process of the tree starts or ends
  std::string channel{};                  // where it sleeps in the kernel; empty: unknown, or awake
  std::uint64_t heartbeat = 0;            // changes with each heartbeat; 0: none so far
};

// What successive answers of NCCL's RAS service reported about a worker.
struct Nccl {
  std::uint64_t progress = 0;
  Time answered_at{};
  bool has_two_answers = false;  // false: whether it makes progress is not known yet
  std::optional<Time> moved_at{};
  std::optional<Time> behind_at{};  // behind in every answer since this time
};

struct Worker {
  Sample last{};
  Time output_at{};
  Time cpu_at{};
  Time channel_at{};
  std::uint64_t channel_ticks = 0;  // CPU time when it fell asleep there
  std::uint64_t look_ticks = 0;     // CPU time when the last look's request was answered
  Time beat_at{};
  std::optional<Nccl> nccl{};
  std::optional<Time> reported_at{};
};

struct State {
  Milliseconds timeout{0};
  Milliseconds ask_interval{0};
  std::vector<Worker> workers{};
  Time sampled_at{};
  std::optional<Time> looked_at{};  // when the current look began; absent: there is none
  bool is_answered = false;         // the workers have answered the look's request
  std::optional<Time> asked_at{};
};

struct Suspect {
  int local_rank = 0;
  std::string how{};  // "no output and no CPU time for 60 s"
  bool operator==(const Suspect&) const = default;
};

// The time between two samples.
Milliseconds sample_interval(Milliseconds timeout);

State begin(std::size_t workers, Milliseconds timeout, Time now);

// Takes one sample per worker, by local rank. Returns the workers to report now.
std::vector<Suspect> take(State& state, const std::vector<Sample>& samples, Time now);

// Call around an inspection of the workers, in which a debugger may stop them, and when they have
// answered its request for a dump.
void begin_look(State& state, Time now);
void note_answers(State& state, const std::vector<Sample>& samples);
void end_look(State& state, Time now);

// The time between two NCCL queries of one node if `nodes` nodes send them.
Milliseconds ask_interval(Milliseconds timeout, int nodes);

// Whether to query NCCL's service now. If so, the caller then calls note_asked.
bool wants_nccl(const State& state, Time now);
void note_asked(State& state, Time now);
// Takes an answer of NCCL's service, by local rank. Workers missing from it are judged without it.
void note_positions(State& state, const std::vector<ras::RankPosition>& positions, Time now);

// Whether the worker has shown no sign of activity for the timeout.
bool is_quiet(const State& state, std::size_t local_rank);

}  // namespace drun::agent::hang

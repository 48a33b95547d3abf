#include "agent/hang/hang.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace drun::agent::hang {
namespace {

constexpr Milliseconds kShortest{100};
constexpr Milliseconds kLongest{5000};
constexpr int kSamples = 8;  // per timeout
constexpr int kTicksPerSecond = 100;
constexpr std::uint64_t kLookTicks = 20;  // that a look may cost a worker after its answer
constexpr int kQuestions = 4;             // NCCL queries per timeout
constexpr Milliseconds kForEachNode{50};  // between two queries of the whole job, approximately

std::string seconds_text(Milliseconds time) {
  char text[32];
  const double seconds = static_cast<double>(time.count()) / 1000;
  std::snprintf(text, sizeof(text), time.count() < 10'000 ? "%.1f s" : "%.0f s", seconds);
  return text;
}

Worker new_worker(Time now) {
  Worker worker;
  worker.output_at = worker.cpu_at = worker.channel_at = worker.beat_at = now;
  return worker;
}

void note(Worker& worker, const Sample& sample, bool is_looked_at, Time now) {
  const Sample& last = worker.last;
  if (!last.is_running || sample.output != last.output) worker.output_at = now;
  const bool same_tree = last.is_running && sample.processes == last.processes;
  const bool is_of_look =
      is_looked_at && same_tree && sample.cpu_ticks - worker.look_ticks <= kLookTicks;
  if (!is_of_look && (!same_tree || sample.cpu_ticks != last.cpu_ticks)) worker.cpu_at = now;
  if (is_of_look) {
    worker.channel_ticks += sample.cpu_ticks - last.cpu_ticks;
  } else if (!same_tree || sample.channel.empty() || sample.channel != last.channel) {
    worker.channel_at = now;
    worker.channel_ticks = sample.cpu_ticks;
  }
  if (!last.is_running || sample.heartbeat != last.heartbeat) worker.beat_at = now;
  worker.last = sample;
}

// Without what the current look may have caused.
Sample without_look(Sample sample, const Worker& worker, const State& state) {
  const Sample& last = worker.last;
  if (!state.looked_at || !last.is_running) return sample;
  if (sample.writes_to_file) sample.output = last.output;
  if (state.is_answered) return sample;
  sample.cpu_ticks = last.cpu_ticks;
  sample.processes = last.processes;
  sample.channel = last.channel;
  return sample;
}

// Allows less than 1 % of CPU time, which periodic polling threads use.
bool sleeps_in_one_place(const Worker& worker, Milliseconds timeout, Time now) {
  if (worker.last.channel.empty() || now - worker.channel_at < timeout) return false;
  const auto asleep = std::chrono::duration_cast<Milliseconds>(now - worker.channel_at);
  const auto used = static_cast<std::int64_t>(worker.last.cpu_ticks - worker.channel_ticks);
  return used * 1000 / kTicksPerSecond * 100 < asleep.count();
}

// Whether the last answer about this worker is recent.
bool is_answered_lately(const Worker& worker, const State& state, Time now) {
  return worker.nccl && now - worker.nccl->answered_at <= 3 * state.ask_interval;
}

bool may_move_in_nccl(const Worker& worker, const State& state, Time now) {
  if (!is_answered_lately(worker, state, now)) return false;
  const Nccl& nccl = *worker.nccl;
  return !nccl.has_two_answers || (nccl.moved_at && now - *nccl.moved_at < state.timeout);
}

struct Signs {
  std::vector<std::string> words{};
  Time since{};
};

// The signs that have lasted for `timeout`.
Signs signs_of(const Worker& worker, const State& state, Milliseconds timeout, Time now) {
  Signs signs;
  const bool has_heartbeat = worker.last.heartbeat != 0;
  if (!worker.last.is_running || (has_heartbeat && now - worker.beat_at < timeout)) return signs;
  if (may_move_in_nccl(worker, state, now)) return signs;
  const auto sign = [&signs](std::string words, Time since) {
    signs.words.push_back(std::move(words));
    signs.since = std::max(signs.since, since);
  };
  if (worker.last.output && now - worker.output_at >= timeout) sign("no output", worker.output_at);
  if (now - worker.cpu_at >= timeout)
    sign("no CPU time", worker.cpu_at);
  else if (sleeps_in_one_place(worker, timeout, now))
    sign("always asleep in " + worker.last.channel, worker.channel_at);
  if (has_heartbeat) sign("no heartbeat", worker.beat_at);
  if (is_answered_lately(worker, state, now) && worker.nccl->behind_at &&
      now - *worker.nccl->behind_at >= timeout)
    sign("others waiting for it in NCCL", *worker.nccl->behind_at);
  return signs;
}

std::string words_of(const Worker& worker, const Signs& signs, Time now) {
  std::string text = worker.last.is_stopped ? "stopped, " : "";
  for (std::size_t i = 0; i < signs.words.size(); ++i) {
    if (i > 0) text += i + 1 == signs.words.size() ? " and " : ", ";
    text += signs.words[i];
  }
  return text + " for " + seconds_text(std::chrono::duration_cast<Milliseconds>(now - signs.since));
}

bool is_hung(const Signs& signs) { return signs.words.size() >= 2; }

}  // namespace

Milliseconds sample_interval(Milliseconds timeout) {
  return std::clamp(timeout / kSamples, kShortest, kLongest);
}

State begin(std::size_t workers, Milliseconds timeout, Time now) {
  State state{.timeout = timeout,
              .ask_interval = ask_interval(timeout, 1),
              .workers = {},
              .sampled_at = now};
  state.workers.assign(workers, new_worker(now));
  return state;
}

std::vector<Suspect> take(State& state, const std::vector<Sample>& samples, Time now) {
  const bool was_held_up = now - state.sampled_at > 3 * sample_interval(state.timeout);
  state.sampled_at = now;
  if (was_held_up) state.workers.assign(state.workers.size(), new_worker(now));
  std::vector<Suspect> suspects;
  for (std::size_t i = 0; i < std::min(samples.size(), state.workers.size()); ++i) {
    Worker& worker = state.workers[i];
    note(worker, without_look(samples[i], worker, state), state.looked_at.has_value(), now);
    if (state.looked_at) continue;
    const Signs signs = signs_of(worker, state, state.timeout, now);
    if (!is_hung(signs)) {
      worker.reported_at.reset();
      continue;
    }
    if (worker.reported_at && now - *worker.reported_at < state.timeout) continue;
    worker.reported_at = now;
    suspects.push_back({static_cast<int>(i), words_of(worker, signs, now)});
  }
  return suspects;
}

void begin_look(State& state, Time now) {
  if (state.looked_at) return;
  state.looked_at = now;
  state.is_answered = false;
}

void note_answers(State& state, const std::vector<Sample>& samples) {
  if (!state.looked_at || std::exchange(state.is_answered, true)) return;
  for (std::size_t i = 0; i < std::min(samples.size(), state.workers.size()); ++i) {
    Worker& worker = state.workers[i];
    worker.channel_ticks += samples[i].cpu_ticks - worker.last.cpu_ticks;
    worker.look_ticks = worker.last.cpu_ticks = samples[i].cpu_ticks;
    worker.last.processes = samples[i].processes;
  }
}

void end_look(State& state, Time now) {
  if (!state.looked_at) return;
  const auto length = now - *state.looked_at;
  state.looked_at.reset();
  for (Worker& worker : state.workers) {
    for (Time* const mark :
         {&worker.output_at, &worker.cpu_at, &worker.channel_at, &worker.beat_at})
      *mark = std::min(*mark + length, now);
    if (!worker.nccl) continue;
    worker.nccl->answered_at = std::min(worker.nccl->answered_at + length, now);
    for (std::optional<Time>* const mark : {&worker.nccl->moved_at, &worker.nccl->behind_at})
      if (*mark) *mark = std::min(**mark + length, now);
  }
}

Milliseconds ask_interval(Milliseconds timeout, int nodes) {
  return std::max<Milliseconds>(timeout / kQuestions, nodes * kForEachNode);
}

bool wants_nccl(const State& state, Time now) {
  if (state.looked_at || (state.asked_at && now - *state.asked_at < state.ask_interval))
    return false;
  return std::any_of(state.workers.begin(), state.workers.end(), [&](Worker worker) {
    worker.nccl.reset();  // judge it by the other signs
    return !signs_of(worker, state, state.timeout / 2, now).words.empty();
  });
}

void note_asked(State& state, Time now) { state.asked_at = now; }

void note_positions(State& state, const std::vector<ras::RankPosition>& positions, Time now) {
  for (std::size_t i = 0; i < std::min(positions.size(), state.workers.size()); ++i) {
    Worker& worker = state.workers[i];
    const ras::RankPosition& position = positions[i];
    if (!position.is_known) {
      worker.nccl.reset();
      continue;
    }
    const bool is_first = !is_answered_lately(worker, state, now);
    if (is_first) worker.nccl = Nccl{};
    Nccl& nccl = *worker.nccl;
    nccl.has_two_answers = !is_first;
    const bool has_moved = !is_first && position.progress != nccl.progress;
    if (has_moved) nccl.moved_at = now;
    if (position.stand != NcclPosition::Behind)
      nccl.behind_at.reset();
    else if (!nccl.behind_at || has_moved)
      nccl.behind_at = now;
    nccl.progress = position.progress;
    nccl.answered_at = now;
  }
}

bool is_quiet(const State& state, std::size_t local_rank) {
  if (local_rank >= state.workers.size()) return false;
  const Time now = state.looked_at.value_or(state.sampled_at);
  return is_hung(signs_of(state.workers[local_rank], state, state.timeout, now));
}

}  // namespace drun::agent::hang

#include "agent/faults.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "rendezvous/base/text.h"

namespace drun {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr int kMostTarget = 1'000'000;
constexpr Milliseconds kLongest = std::chrono::hours(24 * 365);

Error wrong(std::string_view fault, std::string_view part, const std::string& reason) {
  const std::string of_fault = part == fault ? "" : std::string(fault) + ": ";
  return Error{ErrorCode::Usage, of_fault + "\"" + std::string(part) + "\": " + reason};
}

template <typename Number>
std::optional<Number> number_of(std::string_view text, Number least, Number most) {
  const auto number = whole_number<Number>(text);
  return number && *number >= least && *number <= most ? number : std::nullopt;
}

// "20s", "500ms", "2m", "1h", "20", "1.5s".
std::optional<Milliseconds> duration_of(std::string_view text) {
  struct Unit {
    std::string_view name;
    double milliseconds;
  };
  static constexpr std::array<Unit, 4> kUnits{Unit{"ms", 1}, Unit{"s", 1000}, Unit{"m", 60'000},
                                              Unit{"h", 3'600'000}};
  double unit = 1000;
  for (const Unit& each : kUnits) {
    if (!text.ends_with(each.name)) continue;
    text.remove_suffix(each.name.size());
    unit = each.milliseconds;
    break;
  }
  double number = 0;
  const auto [end, ec] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  const double milliseconds = number * unit;
  if (ec != std::errc() || text.empty() || end != text.data() + text.size() ||
      !(milliseconds >= 0) || milliseconds > static_cast<double>(kLongest.count()))
    return std::nullopt;
  return Milliseconds(static_cast<Milliseconds::rep>(milliseconds));
}

std::optional<std::string_view> value_of(std::string_view part, std::string_view name) {
  if (!part.starts_with(name) || part.size() <= name.size() || part[name.size()] != '=')
    return std::nullopt;
  return part.substr(name.size() + 1);
}

constexpr const char* kTimes = "expected a time such as 20s, 500ms or 2m";

struct KindWord {
  std::string_view word;
  std::optional<FaultKind> of_rank{};
  std::optional<FaultKind> of_node{};
};
constexpr std::array<KindWord, 6> kKinds{KindWord{"kill", FaultKind::Kill, FaultKind::KillNode},
                                         KindWord{"exit", FaultKind::Exit, std::nullopt},
                                         KindWord{"stop", FaultKind::Stop, std::nullopt},
                                         KindWord{"oom", FaultKind::OutOfMemory, std::nullopt},
                                         KindWord{"freeze", std::nullopt, FaultKind::FreezeNode},
                                         KindWord{"cut", std::nullopt, FaultKind::CutNode}};

Result<RandomFaults> parse_random(std::string_view text, std::span<const std::string_view> parts) {
  RandomFaults random{.text = std::string(text)};
  for (const std::string_view part : parts) {
    const auto seed = value_of(part, "seed");
    const auto every = value_of(part, "every");
    if (seed) {
      const auto number = number_of<std::uint64_t>(*seed, 0, UINT64_MAX);
      if (!number) return wrong(text, part, "expected a number, such as seed=7");
      random.seed = *number;
    } else if (every) {
      const auto time = duration_of(*every);
      if (!time || *time < Milliseconds(100))
        return wrong(text, part, "expected a time of 100 ms or more, such as every=10s");
      random.every = *time;
    } else {
      return wrong(text, part, "expected seed=N or every=TIME");
    }
  }
  if (random.every == Milliseconds(0))
    return wrong(text, "random", "it needs every=TIME, as in random:seed=7:every=10s");
  return random;
}

// "20s", "round=1", "round=1+3s".
Result<void> parse_time(Fault& fault, std::string_view text, std::string_view time) {
  std::string_view after = time;
  if (const auto rest = value_of(time, "round")) {
    const std::size_t plus = rest->find('+');
    const auto round = number_of(rest->substr(0, plus), 0, kMostTarget);
    if (!round)
      return wrong(text, time, "expected the number of a round, such as round=1 or round=1+3s");
    fault.round = *round;
    if (plus == rest->npos) return {};
    after = rest->substr(plus + 1);
  }
  const auto parsed = duration_of(after);
  if (!parsed) return wrong(text, after, kTimes);
  fault.after = *parsed;
  return {};
}

Result<void> parse_target(Fault& fault, std::string_view text, const KindWord& kind,
                          std::string_view part) {
  const auto rank = value_of(part, "rank");
  const auto node = value_of(part, "node");
  std::optional<FaultKind> chosen;
  if (rank) chosen = kind.of_rank;
  if (!rank && node) chosen = kind.of_node;
  const auto number = number_of(rank.value_or(node.value_or("")), 0, kMostTarget);
  if (!chosen || !number)
    return wrong(text, part,
                 std::string("expected ") + (kind.of_rank ? "rank=N" : "") +
                     (kind.of_rank && kind.of_node ? " or " : "") + (kind.of_node ? "node=N" : ""));
  fault.kind = chosen.value();
  fault.target = *number;
  return {};
}

Result<Fault> parse_fault(std::string_view text, std::string_view head) {
  const std::vector<std::string_view> parts = split(head, ':');
  const auto* const kind = std::find_if(
      kKinds.begin(), kKinds.end(), [&](const KindWord& each) { return each.word == parts[0]; });
  if (kind == kKinds.end())
    return wrong(text, parts[0], "expected kill, exit, stop, oom, freeze, cut or random");
  Fault fault{.text = std::string(text)};
  if (head.size() == text.size())
    return wrong(text, text, "no time; write @TIME behind it, such as @20s or @round=1+3s");
  if (auto parsed = parse_time(fault, text, text.substr(head.size() + 1)); !parsed)
    return parsed.error();
  if (parts.size() < 2) return wrong(text, head, "expected what it is of, such as rank=3");
  if (auto parsed = parse_target(fault, text, *kind, parts[1]); !parsed) return parsed.error();
  bool has_code = false;
  for (std::size_t i = 2; i < parts.size(); ++i) {
    const auto code = value_of(parts[i], "code");
    if (!code || fault.kind != FaultKind::Exit)
      return wrong(text, parts[i], "not expected here; code=N is for exit");
    const auto number = number_of(*code, 1, 255);
    if (!number) return wrong(text, parts[i], "expected an exit code from 1 to 255");
    fault.code = *number;
    has_code = true;
  }
  if (fault.kind == FaultKind::Exit && !has_code) fault.code = 1;
  return fault;
}

// splitmix64.
std::uint64_t mixed(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

std::string place_of(const Failure& failure) {
  return "rank " + std::to_string(failure.rank) + " on node " + std::to_string(failure.node_rank);
}

std::string what_followed(const Ending& ending) {
  return std::visit(
      Overloaded{
          [](const Succeeded&) { return std::string("the job succeeded"); },
          [](const WorkersFailed& failed) {
            if (failed.failures.empty()) return std::string("the job failed");
            const Failure& root = failed.failures.front();
            return "the job failed: " + place_of(root) + ": " + to_string(root.status);
          },
          [](const Interrupted& interrupted) {
            return "the job was ended by " + signal_name(interrupted.signal);
          },
          [](const NodeLost& lost) {
            return "the job ended: node " + std::to_string(lost.node_rank) + " was lost";
          },
          [](const NotRun& not_run) { return "the job ended: " + not_run.error.message; },
          [](const Preempted& preempted) { return "the job was preempted: " + preempted.reason; }},
      ending);
}

}  // namespace

bool is_of_node(FaultKind kind) {
  return kind == FaultKind::KillNode || kind == FaultKind::FreezeNode || kind == FaultKind::CutNode;
}

Result<FaultPlan> parse_faults(std::string_view text) {
  FaultPlan plan;
  for (const std::string_view each : split(text, ',')) {
    if (each.empty())
      return Error{ErrorCode::Usage,
                   "an empty fault; write faults such as kill:rank=3@20s, with a comma in between"};
    const std::string_view head = each.substr(0, each.find('@'));
    const std::vector<std::string_view> parts = split(head, ':');
    if (parts[0] == "random") {
      if (plan.random) return wrong(each, "random", "it is there twice; write one of them");
      if (head.size() != each.size())
        return wrong(each, each.substr(head.size()), "random takes every= instead of a time");
      Result<RandomFaults> random = parse_random(each, std::span(parts).subspan(1));
      if (!random) return random.error();
      plan.random = *std::move(random);
      continue;
    }
    Result<Fault> fault = parse_fault(each, head);
    if (!fault) return fault.error();
    plan.faults.push_back(*std::move(fault));
    if (plan.faults.size() > kMostFaults)
      return Error{ErrorCode::Usage,
                   "over " + std::to_string(kMostFaults) + " faults; write fewer, or random"};
  }
  return plan;
}

Result<void> check_faults(const FaultPlan& plan, JobSize size) {
  for (const Fault& fault : plan.faults) {
    const bool is_node = is_of_node(fault.kind);
    const std::optional<int> count = is_node ? size.nodes : size.workers;
    if (!count || fault.target < *count) continue;
    return wrong(fault.text, (is_node ? "node=" : "rank=") + std::to_string(fault.target),
                 std::string("the job has ") + (is_node ? "nodes" : "ranks") + " 0 to " +
                     std::to_string(*count - 1));
  }
  return {};
}

void FaultSchedule::begin_round(const World& world, int first_round, Time now) {
  if (world.is_preflight) return;
  if (!std::exchange(has_begun_, true) && world.round <= first_round) job_began_ = now;
  world_ = world;
  round_began_ = now;
  // They were not injected while their round ran.
  std::replace(states_.begin(), states_.end(), FaultState::Taken, FaultState::Waiting);
}

std::optional<FaultSchedule::Time> FaultSchedule::time_of(const Fault& fault) const {
  if (!world_) return std::nullopt;
  if (fault.round)
    return *fault.round == world_->round ? std::optional(round_began_ + fault.after) : std::nullopt;
  return job_began_ ? std::optional(*job_began_ + fault.after) : std::nullopt;
}

std::optional<FaultSchedule::Time> FaultSchedule::time_of_random() const {
  if (!world_ || !plan_.random || !job_began_) return std::nullopt;
  return *job_began_ + plan_.random->every * next_random_;
}

// The same on all nodes.
bool FaultSchedule::has_target(const Fault& fault) const {
  return fault.target < (is_of_node(fault.kind) ? world_->node_count : world_->world_size);
}

void FaultSchedule::add_due(const Fault& fault, std::vector<DueFault>& due) const {
  const int local = fault.target - world_->base_rank;
  if (is_of_node(fault.kind)) {
    if (fault.target == world_->node_rank) due.push_back({fault, std::nullopt});
  } else if (local >= 0 && local < world_->local_world_size) {
    due.push_back({fault, local});
  }
}

std::vector<DueFault> FaultSchedule::take_due(Time now) {
  std::vector<DueFault> due;
  for (std::size_t i = 0; i < plan_.faults.size(); ++i) {
    const std::optional<Time> when = time_of(plan_.faults[i]);
    if (states_[i] != FaultState::Waiting || !when || *when > now) continue;
    states_[i] = has_target(plan_.faults[i]) ? FaultState::Taken : FaultState::Past;
    add_due(plan_.faults[i], due);
  }
  const std::optional<Time> random = time_of_random();
  if (!random || *random > now) return due;
  const auto count = static_cast<std::int64_t>((now - *job_began_) / plan_.random->every);
  // One whose time came between rounds has been left out on all nodes.
  const bool is_now = *job_began_ + plan_.random->every * count >= round_began_;
  next_random_ = count + 1;
  if (!is_now) return due;
  const std::uint64_t number = mixed(plan_.random->seed ^ mixed(static_cast<std::uint64_t>(count)));
  const int rank =
      static_cast<int>(number % static_cast<std::uint64_t>(std::max(1, world_->world_size)));
  add_due({.kind = FaultKind::Kill,
           .target = rank,
           .text = plan_.random->text + " kill:rank=" + std::to_string(rank)},
          due);
  return due;
}

void FaultSchedule::on_announced(std::string_view text, Time now) {
  for (std::size_t i = 0; i < plan_.faults.size(); ++i)
    if (plan_.faults[i].text == text) states_[i] = FaultState::Past;
  if (!plan_.random || !job_began_ || !text.starts_with(plan_.random->text)) return;
  // The one that is nearest: here its time may be still to come.
  const auto every = plan_.random->every;
  const auto count = static_cast<std::int64_t>((now - *job_began_ + every / 2) / every);
  next_random_ = std::max(next_random_, count + 1);
}

std::optional<FaultSchedule::Time> FaultSchedule::deadline() const {
  std::optional<Time> best = time_of_random();
  for (std::size_t i = 0; i < plan_.faults.size(); ++i) {
    if (states_[i] != FaultState::Waiting) continue;
    const std::optional<Time> when = time_of(plan_.faults[i]);
    if (when && (!best || *when < *best)) best = when;
  }
  return best;
}

bool is_result_of(const Failure& failure, const InjectedFault& fault) {
  return fault.time && fault.rank == failure.rank && fault.round == failure.round;
}

void settle_faults(Outcome& outcome, std::vector<InjectedFault> injected, const FaultPlan& plan) {
  if (auto* failed = std::get_if<WorkersFailed>(&outcome.ending)) {
    for (Failure& failure : failed->failures)
      for (const InjectedFault& fault : injected)
        if (is_result_of(failure, fault)) failure.injected = fault.fault;
  }
  for (InjectedFault& fault : injected)
    if (fault.followed.empty()) fault.followed = what_followed(outcome.ending);
  outcome.faults = std::move(injected);
  for (const Fault& fault : plan.faults) {
    const bool is_there =
        std::any_of(outcome.faults.begin(), outcome.faults.end(),
                    [&fault](const InjectedFault& each) { return each.fault == fault.text; });
    if (is_there) continue;
    InjectedFault missing;
    missing.fault = fault.text;
    missing.followed = "not injected: no such rank or node ran at that time";
    outcome.faults.push_back(std::move(missing));
  }
}

}  // namespace drun

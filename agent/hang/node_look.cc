#include "agent/hang/node_look.h"

#include <chrono>
#include <string_view>
#include <utility>

#include "agent/diagnosis/hang_positions.h"

namespace drun::agent {
namespace {

constexpr std::chrono::seconds kHeadStart{1};
// The thread that asks for dumps ends by itself before this, unless it hangs.
constexpr std::chrono::seconds kDumpsLimit = FlightRequests::kLimit + std::chrono::seconds(1);

}  // namespace

void NodeLook::take(const ras::Service::Workers& workers, OnDone on_done) {
  waiting_.push_back(std::move(on_done));
  if (waiting_.size() > 1) return;
  workers_ = workers;
  reads_stacks_ = false;
  stacks_.reset();
  findings_.reset();
  dumps_.reset();
  const std::uint64_t number = ++number_;
  head_start_.expires_after(kHeadStart);
  head_start_.async_wait([this, number](const error_code& ec) {
    if (!ec && number == number_) read_stacks();
  });
  ras_.ask(workers_, [this, number](const ras::Findings& findings) {
    if (number != number_ || findings_ || waiting_.empty()) return;
    findings_ = findings;
    read_stacks_if_told();
  });
  flights_.ask([this, number](const auto& dumps) {
    if (number == number_) note_dumps(dumps);
  });
  dumps_limit_.expires_after(kDumpsLimit);
  dumps_limit_.async_wait([this, number](const error_code& ec) {
    if (!ec && number == number_) note_dumps({});
  });
}

void NodeLook::note_dumps(const std::vector<std::optional<FlightDump>>& dumps) {
  if (dumps_ || waiting_.empty()) return;
  dumps_ = dumps;
  dumps_limit_.cancel();
  on_dumps_();
  read_stacks_if_told();
}

void NodeLook::stop() {
  if (waiting_.empty()) return;
  if (!findings_) findings_ = ras::Findings{};
  if (!dumps_) dumps_.emplace();
  if (!reads_stacks_) stacks_ = FoundStacks{.workers = {}, .notes = {"its workers are stopped"}};
  end_if_done();  // otherwise the collector, which is stopped next, answers
}

void NodeLook::read_stacks_if_told() {
  if (findings_ && dumps_) read_stacks();
  end_if_done();
}

void NodeLook::read_stacks() {
  head_start_.cancel();
  if (waiting_.empty() || std::exchange(reads_stacks_, true)) return;
  collector_.collect(workers_.pids, [this, number = number_](const FoundStacks& found) {
    if (number != number_) return;
    stacks_ = found;
    end_if_done();
  });
}

void NodeLook::end_if_done() {
  if (!stacks_ || !findings_ || !dumps_) return;
  head_start_.cancel();
  dumps_limit_.cancel();
  const Found found{*stacks_, *findings_, *dumps_};
  for (const OnDone& on_done : std::exchange(waiting_, {})) on_done(found);
}

namespace {

// "at all_reduce 811 in a communicator of 8, the others at 812 (NCCL)". For a rank that is ahead,
// NCCL's words would describe another communicator, where it is behind.
std::string doing_of(const WorkerFacts& known) {
  constexpr std::string_view kIs = "is ";
  const std::string& words = known.nccl.words;
  if (!known.pulse.doing.empty()) return known.pulse.doing;
  if (known.nccl.stand == NcclPosition::Ahead) return std::string(kAheadInNccl);
  if (known.nccl.stand != NcclPosition::Behind || words.empty()) return "";
  return words.substr(words.starts_with(kIs) ? kIs.size() : 0) + " (NCCL)";
}

}  // namespace

Evidence evidence_of(const FoundStacks& found, int base_rank, const std::vector<WorkerFacts>& facts,
                     const std::vector<std::string>& notes) {
  Evidence evidence;
  for (std::size_t i = 0; i < found.workers.size(); ++i) {
    const std::vector<ProcessStacks>& processes = found.workers[i];
    const WorkerFacts known = i < facts.size() ? facts[i] : WorkerFacts();
    const int rank = base_rank + static_cast<int>(i);
    StackGroup group{.ranks = {{rank, rank}}};
    if (processes.empty()) {
      group.doing = "has ended";
      group.source = "agent";
    } else {
      group.doing = doing_of(known);
      group.arrived = known.pulse.arrived;
      group.is_inside = known.pulse.is_inside;
      group.is_quiet = known.is_quiet;
      group.nccl = known.nccl.stand;
      group.source = sources_of(processes);
      group.lines = known.calls;
      const std::vector<std::string> stacks = stack_lines(processes);
      group.lines.insert(group.lines.end(), stacks.begin(), stacks.end());
    }
    merge(evidence, {.groups = {std::move(group)}});
  }
  merge(evidence, {.notes = notes});
  merge(evidence, {.notes = found.notes});
  shrink(evidence);
  return evidence;
}

}  // namespace drun::agent

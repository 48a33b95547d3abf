#include "agent/hang/node_look.h"

#include <chrono>
#include <utility>

namespace drun::agent {
namespace {

constexpr std::chrono::seconds kHeadStart{1};

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
    if (number != number_ || dumps_ || waiting_.empty()) return;
    dumps_ = dumps;
    on_dumps_();
    read_stacks_if_told();
  });
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
  const Found found{*stacks_, *findings_, *dumps_};
  for (const OnDone& on_done : std::exchange(waiting_, {})) on_done(found);
}

}  // namespace drun::agent

#include "agent/supervise/fault_injector.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

#include "agent/process/descendants.h"
#include "agent/wall_time.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"

namespace drun::agent {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kAnnounceLimit{1};
// The number of faults that the report lists.
constexpr std::size_t kMostListed = 256;

bool is_same(const InjectedFault& left, const InjectedFault& right) {
  return left.fault == right.fault && left.round == right.round && left.rank == right.rank &&
         left.node_rank == right.node_rank;
}

// "0.8 s".
std::string seconds_between(WallTime from, WallTime to) {
  const auto tenths = std::max<long long>(
      0, std::chrono::duration_cast<std::chrono::milliseconds>(to - from).count() / 100);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace

FaultInjector::FaultInjector(asio::io_context& io, Log log, FaultPlan plan, Node node)
    : log_(std::move(log)),
      plan_(std::move(plan)),
      node_(std::move(node)),
      schedule_(plan_),
      timer_(io) {}

void FaultInjector::begin_round(const World& world) {
  for (InjectedFault& fault : injected_) {
    if (!fault.followed.empty()) continue;
    fault.followed = "round " + std::to_string(world.round) + " began " +
                     seconds_between(*fault.time, wall_now()) + " later, with " +
                     std::to_string(world.world_size) +
                     (world.world_size == 1 ? " worker on " : " workers on ") +
                     std::to_string(world.node_count) +
                     (world.node_count == 1 ? " node" : " nodes");
  }
  ends_.clear();
  pending_.clear();
  world_ = world;
  is_running_ = true;
  if (plan_.is_empty()) return;
  schedule_.begin_round(world, node_.first_round, Clock::now());
  arm();
}

void FaultInjector::end_round() {
  schedule_.end_round();
  timer_.cancel();
  is_running_ = false;
}

void FaultInjector::stop() {
  is_stopped_ = true;
  end_round();
  pending_.clear();
}

void FaultInjector::arm() {
  std::optional<FaultSchedule::Time> next = schedule_.deadline();
  for (const Pending& each : pending_)
    if (!next || each.act_by < *next) next = each.act_by;
  timer_.cancel();
  if (!next || !is_running_) return;
  timer_.expires_at(*next);
  timer_.async_wait([this](const error_code& ec) {
    if (!ec && is_running_) look();
  });
}

void FaultInjector::look() {
  const auto now = Clock::now();
  std::vector<Pending> late;
  for (const Pending& each : pending_)
    if (each.act_by <= now) late.push_back(each);
  std::erase_if(pending_, [now](const Pending& each) { return each.act_by <= now; });
  for (const Pending& each : late) {
    record(each.record);
    inject(each);
  }
  for (DueFault& due : schedule_.take_due(now)) {
    InjectedFault record{.fault = due.fault.text,
                         .time = wall_now(),
                         .rank = due.local_rank ? std::optional(due.fault.target) : std::nullopt,
                         .node_rank = world_->node_rank,
                         .host = node_.host,
                         .round = world_->round,
                         .followed = {}};
    pending_.push_back({std::move(due), record, now + kAnnounceLimit});
    node_.announce(record);
  }
  arm();
}

void FaultInjector::record(const InjectedFault& fault) {
  schedule_.on_announced(fault.fault, Clock::now());
  // The coordinator's answer may come after kAnnounceLimit.
  const bool is_listed =
      std::any_of(injected_.begin(), injected_.end(),
                  [&fault](const InjectedFault& each) { return is_same(each, fault); });
  if (is_listed || injected_.size() >= kMostListed || !fault.time) return;
  injected_.push_back(fault);
  node_.on_recorded(fault);
}

void FaultInjector::on_announced(const InjectedFault& fault) {
  const auto own = std::find_if(pending_.begin(), pending_.end(), [&fault](const Pending& each) {
    return is_same(each.record, fault);
  });
  record(fault);
  if (own == pending_.end()) return;
  const Pending pending = *own;
  pending_.erase(own);
  inject(pending);
  arm();
}

void FaultInjector::inject(const Pending& pending) {
  const Fault& fault = pending.due.fault;
  const int local_rank = pending.due.local_rank.value_or(0);
  log_.warning("injecting " + fault.text + " (--inject)");
  switch (fault.kind) {
    case FaultKind::Exit:
    case FaultKind::OutOfMemory:
      ends_[local_rank] = fault;
      [[fallthrough]];
    case FaultKind::Kill:
      return node_.workers.signal_worker(local_rank, SIGKILL);
    case FaultKind::Stop:
      return node_.workers.signal_worker(local_rank, SIGSTOP);
    case FaultKind::KillNode:
      return kill_node();
    case FaultKind::FreezeNode:
      return freeze_node();
    case FaultKind::CutNode:
      return cut_node();
  }
}

// The guardian kills all other processes.
void FaultInjector::kill_node() const {
  sweep({}, std::chrono::milliseconds(0));
  ::raise(SIGKILL);
}

// The guardian must not end the node, so it is stopped first. Processes that are started meanwhile
// stop when the agent stops, because nothing is started afterwards.
void FaultInjector::freeze_node() const {
  ::kill(::getppid(), SIGSTOP);
  const Descendants below;
  for (const ProcessStat& process : below.all()) send_signal(process, SIGSTOP);
  ::raise(SIGSTOP);
}

void FaultInjector::cut_node() const {
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::snprintf(request.ifr_name, sizeof request.ifr_name, "%s", plan_.cut_interface.c_str());
  bool is_done =
      fd && !plan_.cut_interface.empty() && ::ioctl(fd.get(), SIOCGIFFLAGS, &request) == 0;
  if (is_done) {
    request.ifr_flags = static_cast<short>(request.ifr_flags & ~IFF_UP);
    is_done = ::ioctl(fd.get(), SIOCSIFFLAGS, &request) == 0;
  }
  if (!is_done)
    log_.warning("cannot take down " + plan_.cut_interface + ": " + system_message(errno));
}

WorkerEnd FaultInjector::as_injected(WorkerEnd end) const {
  const auto found = ends_.find(end.local_rank);
  const auto* killed = std::get_if<Killed>(&end.status);
  if (found == ends_.end() || killed == nullptr || killed->signal != SIGKILL) return end;
  if (found->second.kind == FaultKind::Exit)
    end.status = Exited{found->second.code};
  else
    end.out_of_memory = true;
  return end;
}

void FaultInjector::mark(Failure& failure) const {
  for (const InjectedFault& fault : injected_)
    if (is_result_of(failure, fault)) failure.injected = fault.fault;
}

void FaultInjector::settle(Outcome& outcome) const { settle_faults(outcome, injected_, plan_); }

}  // namespace drun::agent

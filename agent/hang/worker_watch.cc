#include "agent/hang/worker_watch.h"

#include <utility>

#include "agent/diagnosis/gpu_faults.h"
#include "agent/process/descendants.h"

namespace drun::agent {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostSampledProcesses = 256;  // of a worker

hang::Sample sample_of(const std::vector<ProcessStat>& tree) {
  hang::Sample sample;
  bool is_awake = false;
  for (const ProcessStat& process : tree) {
    // FNV-1a over the pids in the order of /proc, to detect a change of the set.
    sample.processes = (sample.processes ^ static_cast<std::uint64_t>(process.pid)) * 0x100000001B3;
    sample.cpu_ticks += process.cpu_ticks;
    if (process.state == 'Z') continue;
    std::string channel = read_proc_file("/proc/" + std::to_string(process.pid) + "/wchan");
    if (channel.empty() || channel == "0") is_awake = true;
    if (&process == &tree.front()) sample.channel = std::move(channel);
  }
  if (is_awake) sample.channel.clear();
  sample.is_running = !tree.empty() && tree.front().state != 'Z';
  sample.is_stopped = !tree.empty() && (tree.front().state == 'T' || tree.front().state == 't');
  return sample;
}

// By local rank, without output and heartbeats. Processes that cannot be read are ignored.
std::vector<hang::Sample> sample_processes(const std::vector<int>& pids) {
  const Descendants found;
  std::vector<hang::Sample> samples;
  for (const std::vector<ProcessStat>& tree : trees_below(pids, found.all(), kMostSampledProcesses))
    samples.push_back(sample_of(tree));
  return samples;
}

}  // namespace

WorkerWatch::WorkerWatch(asio::io_context& io, const Log& log, const AgentSpec& spec,
                         std::span<const std::string> environment, Output& output)
    : log_(log),
      ras_(io, log, spec),
      flights_(io, log, spec),
      collector_(io, environment),
      look_(io, ras_, flights_, collector_,
            [this] {
              if (on_suspects_) hang::note_answers(hangs_, sample_processes(pids_()));
            }),
      output_(output),
      timer_(io),
      timeout_(spec.hang_timeout) {}

Result<void> WorkerWatch::prepare(const World& world) {
  gpu_fault_lines_.clear();
  kernel_log_.skip();
  if (Result<void> prepared = flights_.prepare(world); !prepared) return prepared;
  const bool has_files = timeout_.count() > 0 || (world.world_size > 1 && !world.is_preflight);
  const Result<void> prepared =
      heartbeats_.prepare(world.round, has_files ? world.local_world_size : 0);
  if (!prepared && !std::exchange(has_warned_, true))
    log_.warning("workers run without heartbeat files: " + prepared.error().message);
  return {};
}

void WorkerWatch::start(const World& world, Pids pids, OnSuspects on_suspects) {
  pids_ = std::move(pids);
  base_rank_ = world.base_rank;
  node_rank_ = world.node_rank;
  if (timeout_.count() == 0 || world.is_preflight) return;
  nccl_positions_.clear();
  on_suspects_ = std::move(on_suspects);
  hangs_ = hang::begin(pids_().size(), timeout_, Clock::now());
  hangs_.ask_interval = hang::ask_interval(timeout_, world.node_count);
  wait();
}

std::vector<int> WorkerWatch::stop() {
  timer_.cancel();
  on_suspects_ = nullptr;
  look_.stop();
  ras_.stop();
  flights_.stop();
  return collector_.stop();
}

void WorkerWatch::wait() {
  timer_.expires_after(interval());
  timer_.async_wait([this](const error_code& ec) {
    if (ec || !on_suspects_) return;
    const std::vector<hang::Suspect> suspects = sample();
    if (!suspects.empty()) on_suspects_(suspects);
    if (ras_.can_be_asked() && hang::wants_nccl(hangs_, Clock::now())) {
      hang::note_asked(hangs_, Clock::now());
      ask_nccl([this](const std::vector<ras::RankPosition>& positions) {
        if (!on_suspects_) return;
        nccl_positions_ = positions;
        hang::note_positions(hangs_, positions, Clock::now());
      });
    }
    if (on_suspects_) wait();
  });
}

std::vector<hang::Suspect> WorkerWatch::sample() {
  std::vector<hang::Sample> samples = sample_processes(pids_());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i].output = output_.printed(static_cast<int>(i));
    samples[i].writes_to_file = output_.writes_to_file(static_cast<int>(i));
    samples[i].heartbeat = heartbeats_.heartbeat(i);
  }
  return hang::take(hangs_, samples, Clock::now());
}

void WorkerWatch::ask_nccl(
    std::function<void(const std::vector<ras::RankPosition>&)> on_positions) {
  ras_.ask({.pids = pids_(), .base_rank = base_rank_},
           [on_positions = std::move(on_positions)](const ras::Findings& findings) {
             on_positions(findings.positions);
           });
}

std::vector<std::string> WorkerWatch::gpu_faults(int pid, const std::vector<int>& pids) {
  kernel_log_.read([this](std::string_view text) { add_gpu_fault(gpu_fault_lines_, text); });
  return faults_of_process(gpu_fault_lines_, pid, pids);
}

void WorkerWatch::look(OnEvidence on_evidence) {
  hang::begin_look(hangs_, Clock::now());
  const std::vector<int> pids = pids_();
  look_.take(
      {.pids = pids, .base_rank = base_rank_},
      [this, pids, on_evidence = std::move(on_evidence)](const NodeLook::Found& found) {
        on_evidence(evidence_of(found.stacks, base_rank_, facts_of(found, pids), found.nccl.notes));
        hang::end_look(hangs_, Clock::now());
      });
}

std::vector<WorkerFacts> WorkerWatch::facts_of(const NodeLook::Found& found,
                                               const std::vector<int>& pids) {
  if (on_suspects_) sample();
  const auto& positions = found.nccl.positions.empty() ? nccl_positions_ : found.nccl.positions;
  std::vector<WorkerFacts> facts(found.stacks.workers.size());
  for (std::size_t i = 0; i < facts.size(); ++i) {
    WorkerFacts& worker = facts[i];
    worker.pulse = heartbeats_.pulse(i);
    worker.is_quiet = on_suspects_ && hang::is_quiet(hangs_, i);
    if (i < positions.size()) worker.nccl = positions[i];
    if (i < found.flights.size() && found.flights[i])
      worker.calls = flight_lines(*found.flights[i]);
    if (i >= pids.size()) continue;
    for (const std::string& line : gpu_faults(pids[i], pids))
      worker.calls.insert(worker.calls.begin(), kernel_log_line(node_rank_, line));
  }
  return facts;
}

}  // namespace drun::agent

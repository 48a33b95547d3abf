#include "launcher/report/timeline.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <span>
#include <tuple>

#include "launcher/base/text.h"
#include "launcher/base/words.h"
#include "launcher/report/job_reading.h"

namespace drun::timeline {

std::string name_of(const Node& node) {
  return node.node_rank ? "node " + std::to_string(*node.node_rank) + " (" + node.host + ")"
                        : "node on " + node.host;
}

const char* word_of(MarkKind kind) {
  switch (kind) {
    case MarkKind::Failure:
      return "failure";
    case MarkKind::NodeLost:
      return "node lost";
    case MarkKind::Election:
      return "election";
    case MarkKind::Signal:
      return "signal";
    case MarkKind::Hang:
      return "hang";
    case MarkKind::Timeout:
      return "timeout";
    case MarkKind::Preemption:
      return "preemption";
    case MarkKind::LeftOut:
      return "node excluded";
    case MarkKind::Slow:
      return "slow rank";
    case MarkKind::Fault:
      break;
  }
  return "injected fault";
}

struct EventRecord {
  std::string run_id;
  std::string event;
  double time_s = 0;  // since 1970, wall clock
  std::optional<double> up_s{};
  EventJson fields;
};

Builder::Builder() = default;
Builder::~Builder() = default;

void Builder::take(std::string_view lines) {
  for (const std::string_view line : lines_of(lines)) {
    if (line.empty()) continue;
    if (records_ >= kMostRecords) {
      is_full_ = true;
      return;
    }
    EventJson fields = line.size() <= kMostLineBytes ? EventJson::parse(line, nullptr, false)
                                                     : EventJson(EventJson::value_t::discarded);
    const auto time = fields.is_object() ? seconds_of(text_of(fields, "time")) : std::nullopt;
    std::string event = fields.is_object() ? text_of(fields, "event") : "";
    if (!time || event.empty()) {
      ++unreadable_lines_;
      continue;
    }
    const std::pair key(text_of(fields, "host"), int_of(fields, "agent_pid"));
    if (!agents_.contains(key) && agents_.size() >= kMostAgents) {
      is_full_ = true;
      continue;
    }
    auto up = number_of(fields, "up_s");
    if (up && (*up < 0 || *up > kLongest)) up.reset();
    std::string run_id = text_of(fields, "run_id");
    agents_[key].push_back({.run_id = std::move(run_id),
                            .event = std::move(event),
                            .time_s = *time,
                            .up_s = up,
                            .fields = std::move(fields)});
    ++records_;
  }
}

namespace {

void raise(Slowest& slowest, double seconds, const std::string& who) {
  if (seconds > slowest.seconds) slowest = {seconds, who};
}

void add_up(Job& job) {
  const double nodes = static_cast<double>(std::max<std::size_t>(1, job.nodes.size()));
  for (Node& node : job.nodes) {
    for (const Span& span : node.spans)
      node.totals.at(agent::index_of(span.phase)) += span.end_s - span.begin_s;
    double known = 0;
    for (std::size_t i = 0; i < agent::kPhaseCount; ++i) {
      known += node.totals.at(i);
      job.ledger.at(i) += node.totals.at(i) / nodes;
      raise(job.slowest.at(i), node.totals.at(i), name_of(node));
    }
    // The node counts as waiting before its first event and after its last one.
    job.ledger.at(agent::index_of(Phase::Waiting)) += std::max(0.0, job.wall_s - known) / nodes;
    Slowest& start = job.slowest.at(agent::index_of(Phase::Start));
    for (const Rank& rank : node.ranks)
      if (rank.began_s && rank.alive_s)
        raise(start, *rank.alive_s - *rank.began_s, "rank " + std::to_string(rank.rank));
  }
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Adds values that exceed both 1.5 times the median and the median plus 1 s.
void add_slow(Job& job, SlowKind kind, const std::vector<std::pair<double, std::string>>& all) {
  if (all.size() < 2) return;
  std::vector<double> values;
  values.reserve(all.size());
  for (const auto& [seconds, who] : all) values.push_back(seconds);
  const double usual = median(std::move(values));
  std::vector<Slow> slow;
  for (const auto& [seconds, who] : all)
    if (seconds > 1.5 * usual && seconds > usual + 1) slow.push_back({kind, who, seconds, usual});
  std::stable_sort(slow.begin(), slow.end(),
                   [](const Slow& a, const Slow& b) { return a.seconds > b.seconds; });
  slow.resize(std::min(slow.size(), kMostSlow));
  job.slow.insert(job.slow.end(), slow.begin(), slow.end());
}

void find_slow(Job& job) {
  std::vector<std::pair<double, std::string>> arrivals;
  std::vector<std::pair<double, std::string>> starts;
  std::vector<std::pair<double, std::string>> processor;
  const int last = job.rounds.empty() ? 0 : job.rounds.back().round;
  for (const Node& node : job.nodes) {
    arrivals.emplace_back(node.begin_s, name_of(node));
    for (const Rank& rank : node.ranks) {
      if (rank.round != last) continue;
      const std::string who = "rank " + std::to_string(rank.rank) + " on " + name_of(node);
      if (rank.began_s && rank.alive_s) starts.emplace_back(*rank.alive_s - *rank.began_s, who);
      if (rank.processor_s) processor.emplace_back(*rank.processor_s, who);
    }
  }
  add_slow(job, SlowKind::Arrival, arrivals);
  add_slow(job, SlowKind::Start, starts);
  add_slow(job, SlowKind::Processor, processor);
}

// The events of one process in order, with times by its steady clock.
struct AgentEvents {
  std::span<const EventRecord> records{};
  std::string host{};
  int pid = 0;
  std::vector<double> times{};  // of the records
  double shift = 0;

  double begin() const { return times.front() + shift; }
  double end() const { return times.back() + shift; }
  double time(std::size_t i) const { return times[i] + shift; }
};

bool begins_earlier(const AgentEvents& a, const AgentEvents& b) { return a.begin() < b.begin(); }

std::vector<double> times_of(std::span<const EventRecord> records) {
  const double base = records.front().time_s - records.front().up_s.value_or(0);
  std::vector<double> times;
  for (const EventRecord& record : records) {
    const double time = record.up_s ? base + *record.up_s : record.time_s;
    times.push_back(times.empty() ? time : std::clamp(time, times.back(), times.back() + kLongest));
  }
  return times;
}

// A restart of an agent with the same pid is a separate process.
void add_agents(std::vector<AgentEvents>& all, const std::string& host, int pid,
                std::span<const EventRecord> records) {
  while (!records.empty()) {
    const auto next =
        std::find_if(records.begin() + 1, records.end(),
                     [](const EventRecord& record) { return record.event == "agent_started"; });
    const auto count = static_cast<std::size_t>(next - records.begin());
    const auto own = records.first(count);
    all.push_back({.records = own, .host = host, .pid = pid, .times = times_of(own)});
    records = records.subspan(count);
  }
}

// The agents of the job with the run id of the agent that began last; `all` is in order of begin.
// The agents of a job overlap in time. Counts the other jobs.
std::vector<AgentEvents> agents_of_last_job(const std::vector<AgentEvents>& all,
                                            std::size_t& other_jobs) {
  constexpr double kClocks = 5;  // tolerance for clock differences between nodes
  struct LatestJob {
    std::vector<const AgentEvents*> agents{};
    std::set<std::string> hosts{};
    double end_s = 0;
  };
  std::map<std::string, LatestJob> latest;  // by run id
  std::size_t jobs = 0;
  for (const AgentEvents& agent : all) {
    LatestJob& job = latest[agent.records.front().run_id];
    // The clock of one host needs no tolerance, so that a job that is started again is another one.
    const double clocks = job.hosts.contains(agent.host) ? 0 : kClocks;
    if (job.agents.empty() || agent.begin() > job.end_s + clocks) {
      job = {.end_s = agent.end()};
      ++jobs;
    }
    job.agents.push_back(&agent);
    job.hosts.insert(agent.host);
    job.end_s = std::max(job.end_s, agent.end());
  }
  std::vector<AgentEvents> agents;
  for (const AgentEvents* agent : latest[all.back().records.front().run_id].agents)
    agents.push_back(*agent);
  other_jobs = jobs - 1;
  return agents;
}

// Aligns the clocks: a round begins on all nodes at the same time.
void align_clocks(std::vector<AgentEvents>& agents) {
  std::vector<std::map<int, double>> begins;  // of each agent, by round
  for (const AgentEvents& agent : agents) {
    std::map<int, double>& own = begins.emplace_back();
    for (std::size_t i = 0; i < agent.records.size(); ++i)
      if (agent.records[i].event == "round_began")
        own.emplace(int_of(agent.records[i].fields, "round"), agent.time(i));
  }
  const std::map<int, double> common =
      *std::max_element(begins.begin(), begins.end(),
                        [](const auto& a, const auto& b) { return a.size() < b.size(); });
  for (std::size_t n = 0; n < agents.size(); ++n) {
    std::vector<double> differences;
    for (const auto& [round, time] : begins[n])
      if (const auto found = common.find(round); found != common.end())
        differences.push_back(time - found->second);
    if (!differences.empty()) agents[n].shift = -median(std::move(differences));
  }
}

// The agent's node without the contents of its events. `zero`: the begin of the job.
Node node_of(const AgentEvents& agent, double zero, const Builder::Now& now) {
  Node node;
  node.host = agent.host;
  node.agent_pid = agent.pid;
  node.begin_s = agent.begin() - zero;
  node.end_s = agent.end() - zero;
  const bool has_end = agent.records.back().event == "job_ended";
  node.is_running = !has_end && now.is_running && now.is_running(agent.host, agent.pid);
  if (node.is_running) node.end_s = std::max(node.end_s, now.since_epoch_s + agent.shift - zero);
  return node;
}

// Processes the events of all nodes in order of time, so that the first occurrence of each is
// found.
void read_in_order(const std::vector<AgentEvents>& agents, double zero,
                   std::vector<NodeReading>& readings, JobReading& job) {
  std::vector<std::tuple<double, std::size_t, std::size_t>> order;
  for (std::size_t n = 0; n < agents.size(); ++n)
    for (std::size_t i = 0; i < agents[n].records.size(); ++i)
      order.emplace_back(agents[n].time(i) - zero, n, i);
  std::sort(order.begin(), order.end());
  for (const auto& [at_s, n, i] : order) {
    const EventRecord& record = agents[n].records[i];
    job.read(readings[n], {.name = record.event, .node = n, .at_s = at_s, .fields = record.fields});
  }
}

void end_last_phase(NodeReading& reading) {
  constexpr double kFarewell = std::chrono::duration<double>(agent::kLongestFarewell).count();
  const Node& node = reading.node;
  if (reading.phase == Phase::Restarting && node.has_ended &&
      node.end_s - reading.phase_began_s < kFarewell)
    reading.phase = Phase::Stopping;
  reading.enter(Phase::Waiting, node.end_s);
}

// Sorts the nodes by node rank, and updates the marks' indices.
void take_nodes(Job& job, std::vector<NodeReading>& readings) {
  std::vector<std::size_t> places(readings.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::stable_sort(places.begin(), places.end(), [&readings](std::size_t a, std::size_t b) {
    const Node& x = readings[a].node;
    const Node& y = readings[b].node;
    return std::pair(x.node_rank.value_or(1 << 30), x.begin_s) <
           std::pair(y.node_rank.value_or(1 << 30), y.begin_s);
  });
  std::vector<std::size_t> new_places(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    new_places[places[i]] = i;
    job.nodes.push_back(std::move(readings[places[i]].node));
  }
  for (Mark& mark : job.marks) mark.node = new_places[mark.node];
}

void add_notes(Job& job) {
  const auto cut_short = std::count_if(job.nodes.begin(), job.nodes.end(), [](const Node& node) {
    return !node.has_ended && !node.is_running;
  });
  if (cut_short > 0 && job.outcome != "running")
    job.notes.push_back("the events of " + std::to_string(cut_short) + " of " +
                        std::to_string(job.nodes.size()) +
                        " nodes end before the end of the job: drun was killed, or the file is "
                        "incomplete");
  const auto there = static_cast<int>(std::min<std::size_t>(job.nodes.size(), 1 << 20));
  if (there < job.node_count)
    job.notes.push_back("this report has the events of " + std::to_string(there) + " of " +
                        counted(job.node_count, "node") +
                        "; for all of them, run drun report with the event files of all nodes");
  if (job.unreadable_lines > 0)
    job.notes.push_back(counted(job.unreadable_lines, "line") +
                        (job.unreadable_lines == 1 ? " is not an event and is left out"
                                                   : " are not events and are left out"));
  if (job.other_jobs > 0)
    job.notes.push_back("the files also have events of " + counted(job.other_jobs, "other job") +
                        "; this page shows the job that began last");
}

}  // namespace

std::optional<Job> Builder::build(const Now& now) const {
  std::vector<AgentEvents> all;
  for (const auto& [key, records] : agents_) add_agents(all, key.first, key.second, records);
  if (all.empty()) return std::nullopt;
  std::sort(all.begin(), all.end(), begins_earlier);

  Job job;
  job.run_id = all.back().records.front().run_id;
  job.unreadable_lines = unreadable_lines_;
  std::vector<AgentEvents> agents = agents_of_last_job(all, job.other_jobs);
  align_clocks(agents);
  const AgentEvents& earliest = *std::min_element(agents.begin(), agents.end(), begins_earlier);
  job.started = text_of(earliest.records.front().fields, "time");

  std::vector<NodeReading> readings(agents.size());
  double end_s = 0;
  for (std::size_t n = 0; n < agents.size(); ++n) {
    readings[n].node = node_of(agents[n], earliest.begin(), now);
    end_s = std::max(end_s, readings[n].node.end_s);
  }
  job.wall_s = std::min(end_s, kLongest);
  JobReading reading(job);
  read_in_order(agents, earliest.begin(), readings, reading);
  bool is_running = false;
  for (NodeReading& each : readings) {
    end_last_phase(each);
    is_running = is_running || each.node.is_running;
    each.sort_ranks();
  }
  if (job.outcome == "unknown" && is_running) job.outcome = "running";
  take_nodes(job, readings);
  reading.finish();
  add_up(job);
  find_slow(job);
  std::stable_sort(job.marks.begin(), job.marks.end(),
                   [](const Mark& a, const Mark& b) { return a.at_s < b.at_s; });
  add_notes(job);
  if (is_full_) job.notes.emplace_back("there are too many events; the report lacks some of them");
  return job;
}

}  // namespace drun::timeline

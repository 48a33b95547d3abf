#include "worker_lib/probe/findings.h"

#include <algorithm>
#include <cmath>

#include "worker_lib/probe/differences.h"
#include "worker_lib/probe/link_findings.h"
#include "worker_lib/probe/words.h"

namespace drun::probe {
namespace {

constexpr std::uint64_t kMib = std::uint64_t{1} << 20;
constexpr std::uint64_t kFewDescriptors = 1024;
constexpr std::uint64_t kLittleShm = 64 * kMib;
constexpr double kMuchClock = 1.0;

constexpr const char* kRaiseLimit = "raise it: ulimit, /etc/security/limits.conf, the service";

template <typename Judge>
void each_node(const Reports& reports, Judge judge) {
  for (const auto& report : reports) {
    if (report) judge(report->facts);
  }
}

double limit(const std::optional<std::uint64_t>& value) {
  return value ? static_cast<double>(*value) : INFINITY;
}

std::vector<Property> limits() {
  return {
      {.name = "nofile",
       .is_problem = true,
       .is_less_worse = true,
       .remedy = kRaiseLimit,
       .text = [](const NodeFacts& facts) { return limit_text(facts.nofile); },
       .number = [](const NodeFacts& facts) { return limit(facts.nofile); }},
      {.name = "nproc",
       .is_less_worse = true,
       .tolerance = 0.5,
       .remedy = kRaiseLimit,
       .text = [](const NodeFacts& facts) { return limit_text(facts.nproc); },
       .number = [](const NodeFacts& facts) { return limit(facts.nproc); }},
      {.name = "memlock",
       .is_less_worse = true,
       .tolerance = 0.5,
       .remedy = kRaiseLimit,
       .text =
           [](const NodeFacts& facts) {
             return facts.memlock_bytes ? bytes_text(*facts.memlock_bytes) : "unlimited";
           },
       .number = [](const NodeFacts& facts) { return limit(facts.memlock_bytes); }},
  };
}

std::vector<Property> hardware() {
  return {
      {.name = "GPUs:",
       .is_problem = true,
       .is_less_worse = true,
       .remedy = "look at nvidia-smi and CUDA_VISIBLE_DEVICES there",
       .text = [](const NodeFacts& facts) { return std::to_string(facts.gpus); },
       .number = [](const NodeFacts& facts) { return facts.gpus; }},
      {.name = "cores:",
       .is_less_worse = true,
       .tolerance = 0.9,
       .remedy = "look at its cgroup, taskset, and the cores it has",
       .text = [](const NodeFacts& facts) { return std::to_string(facts.cores); },
       .number = [](const NodeFacts& facts) { return facts.cores; }},
      {.name = "memory:",
       .is_less_worse = true,
       .tolerance = 0.9,
       .remedy = "is a memory module missing?",
       .text = [](const NodeFacts& facts) { return bytes_text(facts.memory_bytes); },
       .number = [](const NodeFacts& facts) { return static_cast<double>(facts.memory_bytes); }},
      {.name = "/dev/shm of",
       .is_less_worse = true,
       .tolerance = 0.5,
       .remedy = "mount -o remount,size=... /dev/shm, or the container's --shm-size",
       .text = [](const NodeFacts& facts) { return bytes_text(facts.shm_bytes); },
       .number = [](const NodeFacts& facts) { return static_cast<double>(facts.shm_bytes); }},
      {.name = "MTU",
       .is_less_worse = false,
       .remedy = "set the same everywhere, switches too: ip link set DEVICE mtu N",
       .text =
           [](const NodeFacts& facts) {
             return facts.mtu == 0 ? std::string() : std::to_string(facts.mtu);
           },
       .number = [](const NodeFacts& facts) { return facts.mtu; }},
  };
}

std::vector<Property> software(bool has_gpus) {
  std::vector<Property> properties{{.name = "drun",
                                    .is_problem = true,
                                    .remedy = "install the same drun on all nodes",
                                    .text = [](const NodeFacts& facts) { return facts.version; }}};
  if (!has_gpus) return properties;
  properties.push_back({.name = "GPU driver",
                        .remedy = "install the same driver on all nodes",
                        .text = [](const NodeFacts& facts) { return or_none(facts.driver); }});
  properties.push_back(
      {.name = "NCCL",
       .is_problem = true,
       .remedy = "install the same NCCL on all nodes, or let programs bring their own",
       .text = [](const NodeFacts& facts) { return or_none(facts.nccl); }});
  return properties;
}

void add_differences(std::vector<Finding>& findings, const Reports& reports) {
  bool has_gpus = false;
  each_node(reports, [&](const NodeFacts& facts) { has_gpus = has_gpus || facts.gpus > 0; });
  for (const auto& properties : {software(has_gpus), limits(), hardware()}) {
    for (const Property& property : properties) {
      const auto found = differences(reports, property);
      findings.insert(findings.end(), found.begin(), found.end());
    }
  }
}

// Nodes of which one thing is true, in one line.
template <typename Is>
void add_common(std::vector<Finding>& findings, const Reports& reports, Is is, Finding finding) {
  each_node(reports, [&](const NodeFacts& facts) {
    if (is(facts)) finding.nodes.push_back(facts.node);
  });
  if (finding.nodes.empty()) return;
  finding.what = node_names(reports, finding.nodes) + ": " + finding.what;
  findings.push_back(std::move(finding));
}

void add_shortages(std::vector<Finding>& findings, const Reports& reports) {
  bool is_enough_somewhere = false;  // then the others have been named already
  each_node(reports, [&](const NodeFacts& facts) {
    is_enough_somewhere |= limit(facts.nofile) >= kFewDescriptors;
  });
  add_common(findings, reports, [&](const NodeFacts&) { return !is_enough_somewhere; },
             {.is_problem = true,
              .what = "nofile is under " + std::to_string(kFewDescriptors) +
                      ", and workers hold a connection to every other one",
              .remedy = kRaiseLimit});
  add_common(
      findings, reports,
      [](const NodeFacts& facts) { return facts.has_infiniband && facts.memlock_bytes; },
      {.is_problem = true,
       .what = "InfiniBand needs locked memory, but memlock is limited",
       .remedy =
           "ulimit -l unlimited, LimitMEMLOCK=infinity, or the container's --ulimit memlock"});
  add_common(findings, reports,
             [](const NodeFacts& facts) { return facts.shm_free_bytes < kLittleShm; },
             {.what = "less than " + bytes_text(kLittleShm) +
                      " free in /dev/shm, which workers of a node share memory through",
              .remedy = "empty it, or enlarge it: the container's --shm-size"});
  each_node(reports, [&](const NodeFacts& facts) {
    if (facts.problem.empty()) return;
    findings.push_back({.is_problem = true,
                        .nodes = {facts.node},
                        .what = node_name(reports, facts.node) + ": " + facts.problem,
                        .remedy = ""});
  });
}

void add_clocks(std::vector<Finding>& findings, const Reports& reports) {
  for (const auto& report : reports) {
    if (!report) continue;
    for (const Visit& visit : report->visits) {
      if (visit.to != 0 || !visit.has_arrived) continue;
      if (std::abs(visit.clock_ahead_s) - visit.clock_bound_s < kMuchClock) continue;
      const double by = std::abs(visit.clock_ahead_s);
      findings.push_back({.nodes = {report->facts.node},
                          .what = "the clock of " + node_name(reports, report->facts.node) +
                                  " is " + time_text(by) +
                                  (visit.clock_ahead_s > 0 ? " ahead of" : " behind") +
                                  " node 0's: times in logs will not fit together",
                          .remedy = "start chrony or systemd-timesyncd there"});
    }
  }
}

void add_silent(std::vector<Finding>& findings, const Reports& reports) {
  std::vector<int> silent;
  for (std::size_t node = 0; node < reports.size(); ++node) {
    if (!reports[node]) silent.push_back(static_cast<int>(node));
  }
  if (silent.empty()) return;
  findings.push_back({.is_problem = true,
                      .nodes = silent,
                      .what = node_names(reports, silent) +
                              (silent.size() == 1 ? " has" : " have") +
                              " not told what was found there in time",
                      .remedy = "is the machine overloaded, or cut off from node 0?"});
}

}  // namespace

std::vector<Finding> findings_of(const Reports& reports) {
  std::vector<Finding> findings;
  add_silent(findings, reports);
  add_link_findings(findings, reports);
  add_differences(findings, reports);
  add_shortages(findings, reports);
  add_clocks(findings, reports);
  std::stable_sort(findings.begin(), findings.end(), [](const auto& left, const auto& right) {
    return left.is_problem && !right.is_problem;
  });
  return findings;
}

int node_at_fault(const Finding& finding) {
  if (finding.nodes.empty() || finding.nodes.size() > 2) return 0;
  return finding.nodes.back();
}

bool has_problem(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.is_problem; });
}

std::vector<Finding> findings_about(int node, const std::vector<Finding>& findings) {
  constexpr std::size_t kFew = 2;
  std::vector<Finding> own;
  for (const Finding& finding : findings) {
    const auto& nodes = finding.nodes;
    if (nodes.size() > kFew || std::find(nodes.begin(), nodes.end(), node) == nodes.end()) continue;
    own.push_back(finding);
  }
  return own;
}

std::string node_name(const Reports& reports, int node) {
  const auto index = static_cast<std::size_t>(node);
  const std::string name = "node " + std::to_string(node);
  const bool is_known = index < reports.size() && reports[index];
  if (!is_known || reports[index]->facts.host.empty()) return name;
  return name + " (" + reports[index]->facts.host + ")";
}

std::string node_names(const Reports& reports, const std::vector<int>& nodes) {
  if (nodes.size() == 1) return node_name(reports, nodes.front());
  if (nodes.size() == reports.size()) return "all nodes";
  std::string text = "nodes";
  for (std::size_t i = 0; i < nodes.size();) {
    std::size_t last = i;
    while (last + 1 < nodes.size() && nodes[last + 1] == nodes[last] + 1) ++last;
    text += (i == 0 ? " " : ", ") + std::to_string(nodes[i]);
    if (last > i) text += (last == i + 1 ? ", " : "-") + std::to_string(nodes[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace drun::probe

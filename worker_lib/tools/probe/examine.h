// edge. Runs the probe of one node, and on node 0 collects the reports of all nodes.
//
//   each node   publishes facts about its machine in the store; visits its neighbors and node 0,
//   and
//               resolves their names; reduces data with each neighbor; publishes its report
//   node 0      visits all nodes; then collects the reports and sends the findings to all
//
// Cost:    O(1) per node, O(nodes) on node 0.
// Thread:  any.   Blocks: kExamineAtMost, on node 0 a little longer. A part that fails or hangs is
//          reported.
// Errors:  WorkerError if the store is lost.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "drun/key_store.h"
#include "rendezvous/base/result.h"
#include "worker_lib/tools/probe/findings.h"

namespace drun::probe {

// --- The command line of the probe, which the launcher writes. Errors: Usage.

struct Task {
  std::string version{};  // --drun-version=
  int cores = 0;          // --cores=
  int gpus = 0;           // --gpus=
  std::string problem{};  // --problem=: why the job's program cannot be started here
  bool is_json = false;   // --json
  bool is_quiet = false;  // --quiet: only node 0 prints
  // --preflight: prints no table; exits with 1 on a node that is at fault.
  bool is_preflight = false;
  bool operator==(const Task&) const = default;
};

// `words`: without the program's name.
Result<Task> parse_task(std::span<const std::string> words);

// --- Examination

constexpr std::chrono::seconds kExamineAtMost{60};

struct Seat {
  int node = 0;
  int count = 1;
  std::string master;
  std::uint16_t port = 0;
  std::string network;  // the user's interface; empty: the one that reaches the master
};

struct Examined {
  NodeReport report;
  bool is_hanging = false;  // a thread hangs: end the process without joining it
  // Answers later visitors; keep it until the findings are shown.
  std::shared_ptr<void> host;
};

Examined examine(const Seat& seat, const Task& task, const std::shared_ptr<KeyStore>& store);

// On node 0: collects the reports of the others.
Reports gather(const NodeReport& own, const Seat& seat, KeyStore& store);

// Node 0 sends the findings and waits a moment until all nodes have shown them and confirmed that,
// because the end of node 0 ends them all.
void tell(const std::vector<Finding>& findings, const Seat& seat, KeyStore& store);
std::vector<Finding> hear(KeyStore& store);
void say_told(const Seat& seat, KeyStore& store);

}  // namespace drun::probe

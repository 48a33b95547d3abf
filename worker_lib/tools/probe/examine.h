// edge. The probe of one node, from its first look to its report, and node 0's gathering of all.
//
//   each node   facts of its machine into the store; visits its neighbors and node 0, asks for
//               their names; reduces data with each neighbor; its report into the store
//   node 0      visits all; then gathers the reports, and tells all what it made of them
//
// Cost:    O(1) a node, O(nodes) node 0.
// Thread:  any.   Blocks: kExamineAtMost, node 0 a little longer; a part that fails or hangs is in
//          the report.
// Errors:  WorkerError when the store is lost.
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
  bool is_quiet = false;  // --quiet: node 0 speaks for all
  // --preflight: no table; a node that is at fault ends with 1.
  bool is_preflight = false;
  bool operator==(const Task&) const = default;
};

// `words` without the program's name.
Result<Task> parse_task(std::span<const std::string> words);

// --- Examination

constexpr std::chrono::seconds kExamineAtMost{60};

struct Seat {
  int node = 0;
  int count = 1;
  std::string master;
  std::uint16_t port = 0;
  std::string network;  // the interface that the user wants; empty: that towards the master
};

struct Examined {
  NodeReport report;
  bool is_hanging = false;  // a thread does not end: end the process without it
  // Answers later visitors: to be kept until the findings are shown.
  std::shared_ptr<void> host;
};

Examined examine(const Seat& seat, const Task& task, const std::shared_ptr<KeyStore>& store);

// Node 0: what the others have told.
Reports gather(const NodeReport& own, const Seat& seat, KeyStore& store);

// Node 0 sends the findings and waits a moment until all nodes have shown them and confirmed that,
// because the end of node 0 ends them all.
void tell(const std::vector<Finding>& findings, const Seat& seat, KeyStore& store);
std::vector<Finding> hear(KeyStore& store);
void say_told(const Seat& seat, KeyStore& store);

}  // namespace drun::probe

// core. Plans a job with --hosts: which hosts are its nodes, the number of workers on each, the
// rendezvous endpoint, and the command that starts an agent on each host. node_plan.h makes the
// plan of each node.
//
// Elastic jobs (--nnodes=MIN:MAX): MAX is at most the number of hosts with workers; further hosts
// are spares.
//
// The workers' lines are sent to the launcher as frames, to be logged here, with
//   --log-dir=DIR      one directory here, with a folder per rank of the whole job
//   --gather-logs      the same for --redirects and --tee without --log-dir
// With --no-gather-logs, --duplicate-...-filters, or --redirects or --tee alone, each host keeps
// its logs, and lines are sent as text.
//
// Errors:  Usage, naming the option, the value, the reason and the remedy. Never throws.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "agent/spec.h"
#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "launcher/plan/rendezvous.h"
#include "rendezvous/base/result.h"

namespace drun::hosts {

// One host of the job. Its index in HostPlan::nodes is its node rank unless nodes_wanted is set.
struct HostNode {
  std::string name{};
  std::string user{};
  std::string address{};                        // of a local node; else the name is the address
  std::vector<int> cpus{};                      // of a local node; empty: all
  std::optional<int> workers{};                 // absent: the agent decides
  std::vector<std::string> ssh_command{};       // argv
  std::vector<EnvironmentEntry> environment{};  // for its workers: -x, and --include's devices
  std::string label{};                          // prefix of its workers' lines
  std::vector<ProgramOptions> programs{};       // its share of several programs
  bool operator==(const HostNode&) const = default;
};

struct HostPlan {
  Options options{};  // the user's
  std::vector<HostNode> nodes{};
  std::optional<LocalNodes> local_nodes{};  // set: agents start on this machine, without ssh
  std::vector<int> local_ports{};           // free ports of the loopback interface
  std::string run_id{};
  std::string master_addr{};     // given by the user, or node 0's name; empty: single host
  int master_port = 0;           // 0: any free port
  bool has_own_address = false;  // by the user: do not use addresses that hosts report
  // Nodes whose agents listen before the start and report their address; empty: single host.
  std::vector<std::size_t> endpoints{};
  // Elastic jobs: the number of nodes, and the hosts whose agents may coordinate the job.
  std::optional<NodeRange> nodes_wanted{};
  std::vector<std::size_t> seats{};
  bool has_workers_store = false;  // elastic job with --store=worker
  std::string directory{};         // the agents' working directory
  std::string secret{};            // of the job; empty: none. Never printed
  std::string secret_from{};       // its origin: "/home/me/secret", "DRUN_SECRET", "this job's own"
  int fanout = 8;
  std::string report_file{};
  std::string html_report_file{};
  std::optional<OutputSpec> lines{};  // set if the workers' lines arrive as frames; their files
  bool keeps_all_lines = false;       // in those files
  bool gives_stdin = false;           // rank 0 reads the launcher's standard input
  std::vector<int> termination_signals{};
  ExitCodeStyle exit_codes = ExitCodeStyle::Drun;
  std::vector<std::string> warnings{};
  bool operator==(const HostPlan&) const = default;
};

// `own_path`: absolute path of this drun; the hosts are expected to have drun at the same path.
Result<HostPlan> make_host_plan(const Options& options, const HostFacts& host,
                                const std::string& own_path);

// Whether --redirects, --tee or a filter writes lines of workers to files.
bool writes_files(const Options& options);

// The address of that node for other hosts.
std::string address_of(const HostNode& node);

// --- As text (also for --explain) and as JSON (host_plan_text.cc)

std::string host_plan_text(const HostPlan& plan);
std::string host_plan_json(const HostPlan& plan);

}  // namespace drun::hosts

// core. From --hosts and what goes with it to a plan: which hosts are the nodes of the job, how
// many workers each has, where they meet, and the words that start an agent there.
//
// Owner:   values; copy freely.   Thread: any.
// Errors:  Usage, naming the option, the value, the reason and the remedy. Never throws.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "launcher/plan/rendezvous.h"
#include "rendezvous/base/result.h"

namespace drun::hosts {

// One host of the job; its place in HostPlan::nodes is its node rank, unless nodes_wanted leaves
// those to the job.
struct HostNode {
  std::string name{};
  std::string user{};
  std::string address{};                   // of a local node; else the name is one
  std::vector<int> cpus{};                 // of a local node; empty: all
  std::optional<int> workers{};            // absent: the agent counts
  std::vector<std::string> ssh_command{};  // argv
  // What the agent is told over ssh's standard input.
  std::vector<std::string> arguments{};         // drun's, with argv[0]
  std::vector<EnvironmentEntry> environment{};  // of its workers: -x, and --include's devices
  std::string label{};                          // in front of its workers' lines
  std::vector<ProgramOptions> programs{};       // of several those that it has
  bool operator==(const HostNode&) const = default;
};

struct HostPlan {
  std::vector<HostNode> nodes{};
  std::optional<LocalNodes> local_nodes{};  // the agents are started on this machine, without ssh
  std::vector<int> local_ports{};           // free ones of the loopback interface
  std::string run_id{};
  std::string master_addr{};     // the user's, or node 0's name; empty: one host alone
  int master_port = 0;           // 0: a free one
  bool has_own_address = false;  // the user's: nothing that hosts report is used instead
  // The nodes whose agents listen before the start and report where; empty: one host alone.
  std::vector<std::size_t> endpoints{};
  // Of a job whose nodes may be fewer; the hosts whose agents may coordinate it, by node.
  std::optional<NodeRange> nodes_wanted{};
  std::vector<std::size_t> seats{};
  bool has_workers_store = false;  // of an elastic job: --store=worker
  std::string rdzv_conf{};         // the user's, and what goes with it
  std::string directory{};         // where the agents work
  std::string secret{};            // of the job; empty: none. It is never shown
  std::string secret_from{};       // whose: "/home/me/secret", "DRUN_SECRET", "this job's own"
  int fanout = 8;
  // The hosts in order, each branch's first before those that it logs in to; empty: no tree.
  std::vector<std::vector<std::size_t>> branches{};
  std::chrono::milliseconds login_timeout{0};
  std::string report_file{};
  std::string html_report_file{};
  std::optional<OutputSpec> lines{};  // of workers, if they come here as frames; and their files
  bool keeps_all_lines = false;       // in those files
  bool gives_stdin = false;           // rank 0 reads the starter's standard input
  ExitCodeStyle exit_codes = ExitCodeStyle::Drun;
  std::optional<DryRun> dry_run{};
  LogLevel log_level = LogLevel::Info;
  bool explain = false;
  std::vector<std::string> warnings{};
  bool operator==(const HostPlan&) const = default;
};

// `own_path`: this drun's own, absolute; it is looked for at the same place on the hosts.
Result<HostPlan> make_host_plan(const Options& options, const HostFacts& host,
                                const std::string& own_path);

// Without --hosts: -np, -x and --map-by of a job on this machine, put where its plan looks.
Result<void> settle_without_hosts(Options& options, HostFacts& host, Remarks& remarks);

}  // namespace drun::hosts

// core. Jobs over ssh whose hosts may be fewer than were named: --nnodes=MIN:MAX. Which hosts may
// coordinate the job, and the words that tell the agents so.
//
// Rules:   MAX is at most the number of hosts with workers; those beyond it are spares. Of three
//          hosts and more the first three are endpoints, of which one may be lost; else, and with
//          --master-addr or --store=worker, the first host alone is.
// Errors:  Usage.   Thread: any.

namespace drun::hosts {

bool is_elastic_wish(const Options& options);

// `hosts` with workers are there.
Result<void> check_node_count(const Options& options, std::size_t hosts);

// Where others reach that node.
std::string address_of(const HostNode& node);

// Where the nodes meet is known. Sets nodes_wanted and seats; nothing if the number is fixed.
void plan_elastic_hosts(HostPlan& plan, const Options& options);

// About nodes and where they meet, for the agent of `rank`.
std::vector<std::string> meeting_words(const HostPlan& plan, std::size_t rank, StoreHost store);

}  // namespace drun::hosts

// core. The branches of a job over ssh: the starter logs in to the first host of each, from where
// the others of the branch are logged in to (--ssh-tree).
// Thread:  any.

namespace drun::hosts {

// More hosts than these are a tree unless told otherwise.
inline constexpr std::size_t kMostDirectHosts = 64;

// `hosts` in order, in so many parts as wished, as even as can be; without a wish about as many
// branches as each has hosts. Empty: no tree.
std::vector<std::vector<std::size_t>> branches_of(std::size_t hosts, std::optional<int> wished);

// "8 branches: node01 (7 behind it), ...".
std::string branches_text(const HostPlan& plan);

}  // namespace drun::hosts

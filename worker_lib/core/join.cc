#include "worker_lib/core/join.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/bytes.h"
#include "worker_lib/base/deadline.h"
#include "worker_lib/base/process.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/gloo/gloo_backend.h"
#include "worker_lib/mesh/gather_texts.h"
#include "worker_lib/node/node_layout.h"
#include "worker_lib/start/hosted_store.h"
#include "worker_lib/start/init_plan.h"
#include "worker_lib/start/local_address.h"
#include "worker_lib/store/file_key_store.h"

namespace drun::worker {
namespace {

using Kind = WorkerError::Kind;
using Milliseconds = std::chrono::milliseconds;

constexpr char kOperation[] = "init_process_group";

std::optional<std::string> variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

Kind kind_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::Usage:
      return Kind::Usage;
    case ErrorCode::Timeout:
      return Kind::Timeout;
    case ErrorCode::Unreachable:
    case ErrorCode::Closed:
    case ErrorCode::Refused:
      return Kind::Store;
    default:
      return Kind::System;
  }
}

WorkerError error_at(int rank, Kind kind, const std::string& message) {
  return WorkerError({.kind = kind, .rank = rank, .operation = kOperation, .message = message});
}

template <typename T>
T value_or_throw(Result<T> result, int rank = -1) {
  if (!result) throw error_at(rank, kind_of(result.error().code), result.error().message);
  return std::move(result).value();
}

// --- Which ranks are on which node. Ranks are on one node if they see the same boot of the same
// kernel and the same network namespace, so that they can connect over loopback and pass memory to
// each other.

std::string this_node() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::array<char, 64> network{};
  const ssize_t length = readlink("/proc/self/ns/net", network.data(), network.size());
  // Where /proc does not tell, the host's name must do.
  if (boot.empty() || length <= 0) {
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    return host.data();
  }
  return boot + " " + std::string(network.data(), static_cast<std::size_t>(length));
}

struct RankPlace {
  int node = 0;         // numbered from 0 in the order of the nodes' first ranks
  ProcessName process;  // also for ranks on other nodes
};

// The place of each rank. Each rank sends one request; rank 0 sends one more per other rank.
std::vector<RankPlace> map_nodes(const std::shared_ptr<KeyStore>& store, int rank, int size,
                                 Deadline deadline) {
  const ProcessName process = own_process();
  std::string own;
  ByteWriter writer(own);
  writer.u32(process.pid);
  writer.u64(process.pid_namespace);
  writer.u64(process.started);
  writer.u64(hash_of(this_node()));
  BackendContext group;
  group.rank = rank;
  group.size = size;
  group.store = store;
  group.deadline = deadline;
  std::map<std::uint64_t, int> numbers;  // of the nodes
  std::vector<RankPlace> places;
  for (const std::string& text : gather_texts(group, "node", own)) {
    ByteReader reader(text);
    RankPlace place;
    place.process.pid = reader.u32();
    place.process.pid_namespace = reader.u64();
    place.process.started = reader.u64();
    place.node = numbers.emplace(reader.u64(), static_cast<int>(numbers.size())).first->second;
    places.push_back(place);
  }
  return places;
}

// --- Connects this rank to the group.

class Joining {
 public:
  Joining(const InitOptions& options, InitPlan plan, BackendChoice backend)
      : options_(options),
        plan_(std::move(plan)),
        backend_(std::move(backend)),
        deadline_(deadline_in(options.timeout)) {}

  GroupParts join() {
    GroupParts parts{.job = nullptr, .rank = rank(), .size = size()};
    try {
      parts.job = std::make_shared<Job>();
      Job& job = *parts.job;
      job.self = plan_.self;
      job.timeout = options_.timeout;
      job.backend = backend_;
      job.device = options_.device;
      job.is_debug = is_debug();
      check_is_here(backend_);
      if (size() > 1) meet(parts);
      parts.backend = connect_backend(parts, deadline_);
      // No rank continues before all have read what they need from the store: the rank that hosts
      // it may end soon.
      if (parts.store) wait_for_all(*parts.store);
    } catch (const BackendFailure& failure) {
      throw error_at(rank(), failure.kind, failure.what() + missing(parts.store));
    } catch (const WorkerError& error) {
      throw error_at(rank(), error.kind(), error.message() + missing(parts.store));
    }
    return parts;
  }

 private:
  int rank() const { return plan_.self.rank; }
  int size() const { return world().world_size; }
  const World& world() const { return plan_.self.world; }
  static std::string arrival_key(int rank) { return "here/" + std::to_string(rank); }
  static bool is_debug() {
    const std::string text = variable("DRUN_DEBUG").value_or("");
    return !text.empty() && text != "0";
  }

  // Meets the other ranks at the store.
  void meet(GroupParts& parts) {
    ignore_default_sigpipe();
    Job& job = *parts.job;
    job.rank0_hosts_store = !options_.store && plan_.file_path.empty() && !world().use_agent_store;
    if (plan_.hosts_store)
      job.hosted_store = host_store(world().master_addr, world().master_port).owner;
    parts.store = own_part_of(reach_store());
    parts.store->set(arrival_key(rank()), "", left_until(deadline_));
    take_places(parts, map_nodes(parts.store, rank(), size(), deadline_));
    const bool is_one_node = parts.node_of.back() == 0 &&
                             std::count(parts.node_of.begin(), parts.node_of.end(), 0) == size();
    const bool is_networked = needs_network(backend_.name, is_one_node);
    if (!is_networked && interface().empty()) return;  // a given interface must exist
    const LocalAddress address = value_or_throw(own_address(), rank());
    job.address = address.text;
    if (is_networked) compare_with_first(*parts.store, address);
  }

  void take_places(GroupParts& parts, const std::vector<RankPlace>& places) const {
    const int own_node = places[static_cast<std::size_t>(rank())].node;
    std::vector<ProcessName> on_node;
    parts.node_of.clear();
    parts.world_ranks.clear();
    for (const RankPlace& place : places) {
      parts.world_ranks.push_back(static_cast<int>(parts.node_of.size()));
      parts.node_of.push_back(place.node);
      on_node.push_back(place.node == own_node ? place.process : ProcessName{});
    }
    parts.job->processes = PeerProcesses(on_node);
  }

  std::shared_ptr<KeyStore> reach_store() const {
    if (options_.store) return options_.store;
    if (!plan_.file_path.empty()) {
      return open_file_key_store({.path = plan_.file_path, .rank = rank(), .size = size()},
                                 left_until(deadline_));
    }
    return connect_key_store(world().master_addr, world().master_port, left_until(deadline_));
  }

  // A store prefix that no earlier round and no earlier group can have used: each rank counts its
  // groups in the store, so that programs that run one after the other in a worker differ too. It
  // also differs from other jobs whose engine's job name gave the same port.
  std::shared_ptr<KeyStore> own_part_of(const std::shared_ptr<KeyStore>& store) const {
    const std::string round = "drun/worker/" + world().run_id + "/" + std::to_string(world().round);
    const std::int64_t group =
        store->add(round + "/groups/" + std::to_string(rank()), 1, left_until(deadline_));
    return make_prefix_key_store(round + "/" + std::to_string(group), store);
  }

  // Takes two round trips to the store. The last rank releases all.
  void wait_for_all(KeyStore& store) const {
    if (store.add("connected", 1, left_until(deadline_)) == size()) {
      store.set("all_connected", "", left_until(deadline_));
    }
    store.wait({"all_connected"}, left_until(deadline_));
  }

  // The first of the given interfaces.
  std::string interface() const {
    std::string names = options_.network_interface;
    if (names.empty()) names = variable("GLOO_SOCKET_IFNAME").value_or("");
    return names.substr(0, names.find(','));
  }

  Result<LocalAddress> own_address() const {
    if (!interface().empty()) return address_of_interface(interface());
    return address_towards(world().master_addr, world().master_port);
  }

  // Checks the properties that must be the same on all ranks before they connect: rank 0 publishes
  // them, the others compare.
  void compare_with_first(KeyStore& store, const LocalAddress& address) const {
    const bool has_gloo = backend_.name.find("gloo") != std::string::npos;
    const std::string build =
        (has_gloo ? gloo_build() : "none") + " of " + std::to_string(size()) + " ranks";
    const std::string network = std::string(address.is_ipv6 ? "IPv6" : "IPv4") +
                                (address.is_loopback ? " loopback" : " network");
    if (rank() == 0) return store.set("hello", build + "\n" + network, left_until(deadline_));
    const std::string hello = store.get("hello", left_until(deadline_));
    const std::size_t line = std::min(hello.find('\n'), hello.size());
    if (hello.substr(0, line) != build) {
      throw error_at(rank(), Kind::Mismatch,
                     "rank 0 has Gloo build " + hello.substr(0, line) + ", this rank " + build +
                         "; build the program against one Gloo and start one program");
    }
    if (hello.substr(std::min(line + 1, hello.size())) != network) {
      throw error_at(rank(), Kind::Mismatch,
                     "this rank is reached over " + network + " (" + address.text +
                         "), rank 0 over " + hello.substr(line + 1) + ": MASTER_ADDR \"" +
                         world().master_addr +
                         "\" means different things on the two; use an address instead of a "
                         "name, or set GLOO_SOCKET_IFNAME");
    }
  }

  // "; ranks 3, 5 of 8 have not arrived", if the store can still be read.
  std::string missing(const std::shared_ptr<KeyStore>& store) const {
    std::vector<int> missing;
    try {
      for (int each = 0; store && each < size(); ++each) {
        if (!store->has(arrival_key(each), Milliseconds(1000))) missing.push_back(each);
      }
    } catch (const WorkerError&) {
      return "";
    }
    if (missing.empty()) return "";
    return "; of " + std::to_string(size()) +
           " ranks, these have not arrived: " + describe_ranks(missing);
  }

  const InitOptions& options_;
  const InitPlan plan_;
  const BackendChoice backend_;
  const Deadline deadline_;
};

}  // namespace

GroupParts part_of(const GroupParts& group, const std::vector<int>& ranks, std::uint32_t label) {
  const auto mine = std::find(ranks.begin(), ranks.end(), group.rank);
  GroupParts part{.job = group.job,
                  .rank = static_cast<int>(mine - ranks.begin()),
                  .size = static_cast<int>(ranks.size()),
                  .node_of = nodes_among(group.node_of, ranks),
                  .world_ranks = {},
                  .label = label};
  for (const int rank : ranks)
    part.world_ranks.push_back(group.world_ranks[static_cast<std::size_t>(rank)]);
  return part;
}

BackendContext context_of(const GroupParts& parts, Deadline deadline) {
  BackendContext context;
  context.rank = parts.rank;
  context.size = parts.size;
  context.node_of = parts.node_of;
  if (parts.store) context.store = make_prefix_key_store("backend", parts.store);
  context.address = parts.job->address;
  context.is_debug = parts.job->is_debug;
  context.deadline = deadline;
  context.local_rank = parts.job->self.local_rank;
  context.device = parts.job->device;
  return context;
}

std::unique_ptr<Backend> connect_backend(const GroupParts& parts, Deadline deadline,
                                         std::shared_ptr<void> split_off, EndedRank ended_rank) {
  BackendContext context = context_of(parts, deadline);
  context.split_off = std::move(split_off);
  context.ended_rank = std::move(ended_rank);
  return connect_chosen(parts.job->backend, context);
}

GroupParts join(const InitOptions& options) {
  InitPlan plan = value_or_throw(plan_init(options, variable, ancestor_named));
  const int rank = plan.self.rank;
  return Joining(options, std::move(plan), value_or_throw(parse_backend(options.backend), rank))
      .join();
}

}  // namespace drun::worker

#include "launcher/plan/rendezvous.h"

#include <algorithm>
#include <utility>

#include "launcher/base/text.h"
#include "launcher/cli/option_values.h"
#include "launcher/plan/programs.h"
#include "rendezvous/base/text.h"
#include "rendezvous/net/endpoint.h"
#include "rendezvous/protocol/control_wire.h"

namespace drun {
namespace {

constexpr const char kLoopback[] = "127.0.0.1";

struct Backend {
  bool is_c10d = false;
  bool is_etcd = false;
};

Result<Backend> backend_of(const Options& options) {
  const std::string name = options.rdzv_backend.value_or("static");
  if (options.standalone || name == "static") return Backend{.is_c10d = false};
  if (name == "c10d") return Backend{.is_c10d = true};
  if (!is_etcd(options))
    return usage_error("--rdzv-backend=" + name, "drun supports static, c10d and etcd");
  if (options.rdzv_endpoint && !options.rdzv_endpoint->empty()) return Backend{.is_etcd = true};
  return usage_error(
      "--rdzv-backend=" + name,
      "the address of etcd is missing; set --rdzv-endpoint=HOST:PORT[,HOST:PORT...], or use c10d");
}

Result<int> node_count_of(const Options& options, Backend backend, PlanNotes& notes) {
  const NodeRange nodes = options.nnodes.value_or(NodeRange{});
  const std::string given =
      "--nnodes=" + (nodes.min == nodes.max ? "" : std::to_string(nodes.min) + ":") +
      std::to_string(nodes.max);
  const std::string most = std::to_string(nodes.max);
  if (options.standalone && nodes.max > 1)
    return usage_error(given, "--standalone means one node; remove one of the two");
  if (nodes.min == nodes.max) return nodes.max;
  if (backend.is_c10d || backend.is_etcd) return nodes.max;
  notes.notes.push_back(given + ": all " + most + " nodes are required");
  return nodes.max;
}

Result<int> node_rank_of(const Options& options, int node_count) {
  if (is_elastic(options)) return 0;
  const std::string last = std::to_string(node_count - 1);
  const int rank = options.node_rank.value_or(0);
  if (rank < node_count) return rank;
  return usage_error("--node-rank=" + std::to_string(rank),
                     node_count == 1
                         ? "the job has only node 0; set the number of nodes with --nnodes"
                         : "with --nnodes=" + std::to_string(node_count) + " it is 0 to " + last);
}

// Names are sent to every node; the limit keeps messages small.
constexpr std::size_t kMostNameBytes = 200;

Result<std::string> role_of(const Options& options) {
  std::string role = options.role.value_or("default");
  if (role.size() <= kMostNameBytes) return role;
  return usage_error("--role=" + role, "at most 200 characters are allowed");
}

Result<std::string> run_id_of(const Options& options, const HostFacts& host, bool is_alone,
                              PlanNotes& notes) {
  if (!options.rdzv_id) return is_alone ? host.random_id : "none";
  const std::string& id = *options.rdzv_id;
  if (id.empty()) {
    notes.warnings.push_back("--rdzv-id is empty; this node uses " + host.random_id);
    return host.random_id;
  }
  const bool is_fit = id.size() <= kMostNameBytes && std::all_of(id.begin(), id.end(), [](char c) {
                        return c != '/' && static_cast<unsigned char>(c) >= ' ';
                      });
  if (is_fit) return id;
  return usage_error(
      "--rdzv-id=" + id,
      "it becomes part of a file name; at most 200 characters are allowed and no slash");
}

// An address without a port. Strips brackets.
Result<std::string> master_addr_of(const Options& options) {
  const std::string text = options.master_addr.value_or(kLoopback);
  const Result<Endpoint> parsed = parse_endpoint(text.empty() ? kLoopback : text, 0);
  if (!parsed) return with_context(parsed.error(), "--master-addr");
  if (parsed->port != 0)
    return usage_error("--master-addr=" + text,
                       "set the port separately: --master-port=" + std::to_string(parsed->port));
  return parsed->host;
}

bool is_placed_later(const HostFacts& host) {
  return host.launched && host.launched->is_placed_later;
}

// The rendezvous endpoint of drun's agents.
Result<Endpoint> meeting_of(const Options& options, const HostFacts& host, Backend backend,
                            int node_count) {
  const bool is_workers_store = options.store == StoreHost::Worker;
  if (is_given(options.rdzv_endpoint) && !options.standalone) {
    const int usual = backend.is_c10d || is_workers_store ? kMeetingPort : kMasterPort;
    const int port = is_placed_later(host) ? 0 : usual;
    const std::vector<std::string> listed = listed_endpoints(options);
    if (listed.size() > 1 && !is_elastic(options))
      return usage_error("--rdzv-endpoint=" + *options.rdzv_endpoint,
                         "several endpoints require --rdzv-backend=c10d and several nodes without "
                         "--node-rank; give one endpoint");
    Result<Endpoint> parsed = parse_endpoint(listed.front(), static_cast<std::uint16_t>(port));
    if (!parsed) return with_context(parsed.error(), "--rdzv-endpoint");
    return parsed;
  }
  Result<std::string> addr = master_addr_of(options);
  if (!addr) return addr.error();
  const int meeting_port = node_count == 1 ? 0 : kMeetingPort;
  int port = options.master_port.value_or(backend.is_c10d ? meeting_port : kMasterPort);
  if (is_workers_store) port = meeting_port;
  if (is_placed_later(host) && (is_workers_store || !options.master_port)) port = 0;
  return Endpoint{.host = *addr, .port = static_cast<std::uint16_t>(port)};
}

Result<void> fill_in_places(JoinSpec& join, const Options& options, const HostFacts& host,
                            Backend backend, bool is_alone) {
  const Result<std::string> addr = master_addr_of(options);
  if (!addr) return addr.error();
  const bool is_workers_store = options.store == StoreHost::Worker;
  const bool is_lone_store = join.node_count == 1 && is_workers_store &&
                             !is_given(options.rdzv_endpoint) && !backend.is_c10d;
  if (is_alone || is_lone_store) {
    join.endpoint = {.host = kLoopback, .port = 0};
  } else if (backend.is_etcd) {
    return {};  // see plan_etcd
  } else {
    const Result<Endpoint> meeting = meeting_of(options, host, backend, join.node_count);
    if (!meeting) return meeting.error();
    join.endpoint = *meeting;
  }
  if (join.endpoint.port == 0 && join.node_count > 1 && !is_placed_later(host)) {
    const bool has_endpoint = is_given(options.rdzv_endpoint);
    return usage_error(
        has_endpoint ? "--rdzv-endpoint=" + *options.rdzv_endpoint : "--master-port=0",
        "port 0 means any free port, which the other nodes cannot know; choose one, such as 29500");
  }
  join.master_addr = join.endpoint.host;
  join.master_port = join.endpoint.port;
  if (!is_workers_store) return {};
  if (options.master_addr) join.master_addr = *addr;
  join.master_port = static_cast<std::uint16_t>(options.master_port.value_or(kMasterPort));
  if (join.master_port == 0)
    return usage_error("--master-port=0", "--store=worker requires a specific port");
  if (join.master_port == join.endpoint.port) {
    return usage_error("--store=worker",
                       "the nodes cannot meet on the master port " +
                           std::to_string(join.master_port) +
                           ", which rank 0 uses; set another port in --rdzv-endpoint");
  }
  return {};
}

void remark_unused(const Options& options, Backend backend, bool is_alone, PlanNotes& notes) {
  const bool has_endpoint = is_given(options.rdzv_endpoint);
  const auto unused = [&notes](const std::string& option, const std::string& reason) {
    notes.warnings.push_back(option + " is ignored: " + reason);
  };
  const bool is_workers_store = options.store == StoreHost::Worker;
  if (options.standalone) {
    if (has_endpoint) unused("--rdzv-endpoint", "--standalone chooses its own");
    if (options.master_port && !is_workers_store)
      unused("--master-port", "--standalone chooses its own");
  }
  if (is_workers_store) return;
  if (backend.is_etcd && is_alone)
    notes.notes.push_back("--rdzv-endpoint is ignored: one node alone needs no etcd");
  if (backend.is_etcd && options.master_addr)
    return unused("--master-addr", "the elected node's address is used; see --local-addr");
  if (backend.is_etcd) return;
  if (options.master_addr && is_alone) {
    notes.notes.push_back("--master-addr is ignored: one node alone meets on " +
                          std::string(kLoopback));
  } else if (options.master_addr && has_endpoint) {
    unused("--master-addr", "the nodes meet at --rdzv-endpoint");
  }
  if (options.master_port && !options.standalone && has_endpoint)
    unused("--master-port", "the nodes meet at --rdzv-endpoint");
}

// torchrun's keys that have no effect here.
constexpr std::string_view kSilentKeys[] = {
    "last_call_timeout", "close_timeout", "heartbeat_timeout",       "read_timeout", "is_host",
    "store_type",        "rank",          "cas_backoff_max_seconds",
};

Result<void> fill_in_timeouts(JoinSpec& join, const Options& options, PlanNotes& notes) {
  std::optional<std::chrono::milliseconds> timeout, join_timeout, interval;
  std::optional<int> attempts;
  for (const auto& [key, value] : options.rdzv_conf) {
    const std::string given = "--rdzv-conf " + key + "=" + value;
    if (key == "keep_alive_max_attempt") {
      const Result<int> count = parse_count(value);
      if (!count || *count == 0) return usage_error(given, "expected a number, 1 or more");
      attempts = *count;
      continue;
    }
    std::optional<std::chrono::milliseconds>* field = key == "timeout"               ? &timeout
                                                      : key == "join_timeout"        ? &join_timeout
                                                      : key == "keep_alive_interval" ? &interval
                                                                                     : nullptr;
    if (field == nullptr) {
      const bool is_silent =
          std::find(std::begin(kSilentKeys), std::end(kSilentKeys), key) != std::end(kSilentKeys);
      if (!is_silent && !(join.etcd && is_etcd_key(key)))
        notes.warnings.push_back(given + ": unknown key, ignored; remove it or correct its name");
      continue;
    }
    const Result<std::chrono::milliseconds> parsed = parse_interval(value);
    if (!parsed) return usage_error(given, parsed.error().message);
    *field = *parsed;
  }
  if (timeout) join.join_timeout = *timeout;
  if (join_timeout) join.join_timeout = *join_timeout;
  if (interval || attempts) {
    constexpr std::chrono::milliseconds kMost = std::chrono::hours(24 * 365);
    const auto each =
        std::min<std::chrono::milliseconds>(interval.value_or(std::chrono::seconds(5)), kMost);
    join.heartbeat_timeout = std::min(each * std::min(attempts.value_or(3), 1000000), kMost);
  }
  return {};
}

Result<int> workers_on_gpus(const Options& options, const HostFacts& host) {
  const int each = options.gpus_per_worker.value_or(1);
  if (host.gpus % each == 0) return host.gpus / each;
  return usage_error(
      "--gpus-per-worker=" + std::to_string(each),
      "the " + std::to_string(host.gpus) + " visible GPUs of " + host.hostname +
          " are not a multiple of that; set the number of workers instead of --nproc-per-node=gpu");
}

// With more seats, a majority takes longer to reach and is not safer.
constexpr std::size_t kMostSeats = 9;
// The minimum at which one seat may fail.
constexpr std::size_t kLeastSeats = 3;

// `join.endpoint` is the first endpoint. With three or more endpoints, sets `seats` and leaves the
// master's address unset, because it depends on the election.
Result<void> plan_seats(JoinSpec& join, const Options& options, const HostFacts& host) {
  const std::vector<std::string> items = listed_endpoints(options);
  if (items.size() < 2) return {};
  const std::string given = "--rdzv-endpoint=" + *options.rdzv_endpoint;
  if (items.size() > kMostSeats)
    return usage_error(given,
                       "list at most " + std::to_string(kMostSeats) + "; 3 or 5 are sufficient");
  std::vector<Endpoint> seats;
  for (const std::string& item : items) {
    const bool is_later = is_placed_later(host);
    Result<Endpoint> seat =
        parse_endpoint(item, static_cast<std::uint16_t>(is_later ? 0 : kMeetingPort));
    if (!seat) return with_context(seat.error(), "--rdzv-endpoint");
    if (seat->port == 0 && !is_later)
      return usage_error(given, "port 0 means any free port, which the other nodes cannot know");
    if (std::find(seats.begin(), seats.end(), *seat) != seats.end())
      return usage_error(given, to_string(*seat) + " is listed twice");
    seats.push_back(*std::move(seat));
  }
  if (seats.size() < kLeastSeats) return {};
  if (options.store == StoreHost::Worker)
    return usage_error("--store=worker",
                       "with several endpoints, the coordinator's agent serves the store; remove "
                       "the option, or give one endpoint");
  if (options.gather_logs)
    return usage_error("--gather-logs",
                       "with several endpoints, another node may become the coordinator, and lines "
                       "cannot follow it; remove the option, or give one endpoint");
  join.seats = std::move(seats);
  join.master_addr.clear();
  join.master_port = 0;
  return {};
}

void remark_seats(const JoinSpec& join, const Options& options, PlanNotes& notes) {
  if (!join.elastic || join.etcd || listed_endpoints(options).size() != 2) return;
  notes.warnings.push_back(
      "--rdzv-endpoint=" + *options.rdzv_endpoint + ": one of two hosts is not a majority, so " +
      to_string(join.endpoint) +
      " is the only coordinator, and the job ends if it is lost; list three or five endpoints");
}

// As in torchrun.
constexpr OptionWord<bool> kYesNoWords[] = {
    {"1", true},  {"true", true},   {"t", true},  {"yes", true}, {"y", true},
    {"0", false}, {"false", false}, {"f", false}, {"no", false}, {"n", false}};

Result<std::optional<bool>> is_host_of(const Options& options) {
  const std::optional<std::string> text = rdzv_conf(options, "is_host");
  if (!text) return std::optional<bool>();
  const Result<bool> is_host = parse_word<kYesNoWords>(*text);
  if (!is_host) return usage_error("--rdzv-conf is_host=" + *text, "expected 1 or 0");
  return std::optional(*is_host);
}

bool is_this_host(const std::string& name, const HostFacts& host) {
  const auto is_own = [&host](const std::string& address) {
    return is_loopback(address) ||
           std::find(host.addresses.begin(), host.addresses.end(), address) != host.addresses.end();
  };
  if (is_own(name) || lower_case(name) == lower_case(host.hostname)) return true;
  if (!host.addresses_of) return false;
  const std::vector<std::string> resolved = host.addresses_of(name);
  return std::any_of(resolved.begin(), resolved.end(), is_own);
}

Result<void> plan_own_seats(JoinSpec& join, std::optional<bool> is_host, const HostFacts& host) {
  for (std::size_t seat = 0; seat < join.seats.size(); ++seat) {
    if (is_host.value_or(true) && is_this_host(join.seats[seat].host, host))
      join.own_seats.push_back(seat);
  }
  join.is_coordinator = !join.own_seats.empty();
  join.may_be_member = true;
  if (!is_host.value_or(false) || join.is_coordinator) return {};
  return usage_error("--rdzv-conf is_host=1", "none of " + to_string(join.seats) +
                                                  " is an address of this host (" + host.hostname +
                                                  "); list it, or remove is_host");
}

// Requires `join.endpoint`. Sets `elastic` and whether this node listens: by is_host of
// --rdzv-conf, or else if the endpoint's host is this one; of several agents here, the first to
// bind the port listens. With several endpoints, determines which of them are on this host. For
// etcd see plan_etcd().
Result<void> plan_elastic(JoinSpec& join, const Options& options, const HostFacts& host) {
  ElasticSpec elastic;
  elastic.min_nodes = options.nnodes.value_or(NodeRange{}).min;
  elastic.rank_order = options.rank_order.value_or(elastic.rank_order);
  elastic.min_uptime = options.min_uptime.value_or(elastic.min_uptime);
  elastic.exclude_after = options.exclude_after.value_or(0);
  elastic.exclude_slow = options.exclude_slow;
  if (!is_etcd(options) && options.store == StoreHost::Worker &&
      elastic.rank_order != RankOrder::Endpoint)
    return usage_error("--store=worker",
                       "rank 0 serves the store at the endpoint, so that node must be node 0; "
                       "remove --rank-order");
  if (const auto last_call = rdzv_conf(options, "last_call_timeout")) {
    const auto parsed = parse_seconds(*last_call);
    if (!parsed)
      return usage_error("--rdzv-conf last_call_timeout=" + *last_call, parsed.error().message);
    elastic.last_call_timeout = *parsed;
  }
  const Result<std::optional<bool>> is_host = is_host_of(options);
  if (!is_host) return is_host.error();
  join.elastic = elastic;
  join.join_timeout = std::chrono::minutes(10);
  if (is_etcd(options)) return plan_etcd(join, options, host, *is_host);
  if (Result<void> planned = plan_seats(join, options, host); !planned) return planned;
  if (is_placed_later(host)) {
    const std::optional<std::size_t> seat = host.launched->seat;
    join.is_coordinator = seat.has_value();
    if (seat && *seat < join.seats.size()) join.own_seats = {*seat};
    return {};
  }
  if (!join.seats.empty()) return plan_own_seats(join, *is_host, host);
  join.is_coordinator = is_host->has_value() ? **is_host : is_this_host(join.endpoint.host, host);
  join.may_be_member = join.is_coordinator && !is_host->has_value();
  return {};
}

void plan_restarts(JoinSpec& join, const Options& options) {
  join.max_restarts = options.max_restarts.value_or(0);
  const bool is_torchrun = options.invoked_as == "torchrun";
  constexpr std::chrono::seconds kStartupPause{1};
  constexpr int kMaxSameFailures = 3;
  join.restart = options.restart;
  if (!is_torchrun && !options.has_restart_backoff) join.restart.startup_pause = kStartupPause;
  // Higher than --exclude-after, so that a failing node is removed, along with its failures, before
  // the limit ends the job.
  join.restart.max_same_failures = options.max_same_failures.value_or(
      is_torchrun ? 0 : std::max(kMaxSameFailures, options.exclude_after.value_or(0) + 1));
  join.preflight = options.preflight;
}

// Warns about options that have no effect in this kind of world, elastic or not.
void remark_elastic(const JoinSpec& join, const Options& options, PlanNotes& notes) {
  const auto unused = [&notes](const std::string& option, const std::string& reason) {
    notes.warnings.push_back(option + " is ignored: " + reason);
  };
  remark_seats(join, options, notes);
  if (join.elastic && options.node_rank)
    unused("--node-rank",
           "with --rdzv-backend=" + *options.rdzv_backend + " the coordinator assigns node ranks");
  if (!join.elastic && options.rank_order)
    unused("--rank-order", "it requires --rdzv-backend=c10d; this job uses --node-rank");
  if (!join.elastic && options.min_uptime)
    unused("--min-uptime", "it requires --rdzv-backend=c10d with --nnodes=MIN:MAX");
  const bool has_rules =
      options.restart != RestartPolicy{} || options.max_same_failures || options.exclude_after;
  if (join.max_restarts == 0 && has_rules)
    notes.warnings.push_back("no restart takes place: --max-restarts is 0; increase it");
}

}  // namespace

Result<int> plan_workers(const Options& options, const HostFacts& host) {
  const WorkerCount wanted = options.nproc_per_node.value_or(WorkerCount(1));
  if (const int* count = std::get_if<int>(&wanted)) return *count;
  switch (std::get<Device>(wanted)) {
    case Device::Cpu:
      return host.usable_cpus;
    case Device::Auto:
      if (host.gpus > 0) return workers_on_gpus(options, host);
      return host.usable_cpus;
    case Device::Gpu:
      if (host.gpus > 0) return workers_on_gpus(options, host);
      return usage_error("--nproc-per-node=gpu",
                         "no GPU is visible on " + host.hostname +
                             "; check CUDA_VISIBLE_DEVICES, or use a number, cpu or auto");
    case Device::Xpu:
      break;
  }
  return usage_error("--nproc-per-node=xpu",
                     "drun cannot count these devices; set the number of workers");
}

std::optional<std::string> rdzv_conf(const Options& options, std::string_view key) {
  std::optional<std::string> value;
  for (const auto& [each, text] : options.rdzv_conf) {
    if (each == key) value = text;
  }
  return value;
}

std::vector<std::string> listed_endpoints(const Options& options) {
  const std::string list = options.rdzv_endpoint.value_or("");
  const std::vector<std::string_view> items = split(list, ',');
  return {items.begin(), items.end()};
}

bool is_elastic(const Options& options) {
  const NodeRange nodes = options.nnodes.value_or(NodeRange{});
  const bool is_c10d = options.rdzv_backend == "c10d" && !options.standalone;
  const bool is_numbered = options.node_rank && nodes.min == nodes.max;
  return nodes.max > 1 && ((is_c10d && !is_numbered) || is_etcd(options));
}

Result<JoinSpec> plan_join(const Options& options, const HostFacts& host, PlanNotes& notes) {
  const Result<Backend> backend = backend_of(options);
  if (!backend) return backend.error();
  const Result<int> node_count = node_count_of(options, *backend, notes);
  if (!node_count) return node_count.error();
  const Result<int> node_rank = node_rank_of(options, *node_count);
  if (!node_rank) return node_rank.error();
  const bool is_plain =
      !backend->is_c10d && !is_given(options.rdzv_endpoint) && !options.master_port;
  const bool is_alone = *node_count == 1 && (options.standalone || is_plain || backend->is_etcd);
  const Result<std::string> run_id = run_id_of(options, host, is_alone, notes);
  if (!run_id) return run_id.error();
  Result<std::string> role = role_of(options);
  if (!role) return role.error();
  const Result<int> workers = plan_workers(options, host);
  if (!workers) return workers.error();

  JoinSpec join;
  join.run_id = *run_id;
  join.node_rank = *node_rank;
  join.node_count = *node_count;
  join.local_world_size = *workers;
  join.role = *std::move(role);
  if (!options.programs.empty() && !options.doctor) {
    Result<std::vector<RoleShare>> roles = roles_of(options.programs);
    if (!roles) return roles.error();
    join.role = roles->front().role;
    join.roles = *std::move(roles);
  }
  join.is_coordinator = *node_rank == 0;
  join.store_host = options.store;
  if (options.store_memory_bytes && options.store == StoreHost::Worker)
    return usage_error(
        "--store-memory",
        "with --store=worker, drun serves no store that it could limit; remove one of them");
  join.store_memory_bytes = options.store_memory_bytes.value_or(kStoreMemoryBytes);
  plan_restarts(join, options);
  if (Result<void> places = fill_in_places(join, options, host, *backend, is_alone); !places)
    return places.error();
  if (options.preflight && options.store == StoreHost::Worker)
    return usage_error("--preflight",
                       "the probes use the store that drun serves; remove --store=worker, or run "
                       "drun doctor before the job");
  if ((options.exclude_after || options.exclude_slow) && !is_elastic(options))
    return usage_error(options.exclude_after ? "--exclude-after" : "--exclude-slow",
                       "a job of fixed nodes has no spare nodes; use --rdzv-backend=c10d (or etcd) "
                       "and --nnodes=MIN:MAX, or remove the option");
  if (is_elastic(options)) {
    if (Result<void> planned = plan_elastic(join, options, host); !planned) return planned.error();
  }
  if (options.doctor) join.join_timeout = std::chrono::minutes(2);
  if (Result<void> timeouts = fill_in_timeouts(join, options, notes); !timeouts)
    return timeouts.error();
  if (options.heartbeat_timeout) join.heartbeat_timeout = *options.heartbeat_timeout;
  remark_unused(options, *backend, is_alone, notes);
  remark_elastic(join, options, notes);
  return join;
}

namespace {

using rendezvous::kMostAddressesTold;
using rendezvous::kMostAddressesToldBytes;

std::vector<std::string> addresses_to_tell(const HostFacts& host) {
  std::vector<std::string> addresses;
  for (const std::string& each : host.addresses) {
    const std::string address = each.substr(0, each.find('%'));  // a zone is local to this host
    const bool is_new = std::find(addresses.begin(), addresses.end(), address) == addresses.end();
    if (is_new && addresses.size() < kMostAddressesTold &&
        address.size() <= kMostAddressesToldBytes)
      addresses.push_back(address);
  }
  return addresses;
}

}  // namespace

Result<void> plan_secret(JoinSpec& join, const Options& options, const HostFacts& host) {
  const std::optional<std::string> in_environment = variable(host, kSecretVariable);
  if (!options.secret_file && !in_environment) return {};
  Result<Secret> secret = options.secret_file ? host.secret_file(*options.secret_file)
                                              : Secret::make(*in_environment, kSecretVariable);
  if (!secret)
    return options.secret_file ? with_context(secret.error(), "--secret-file") : secret.error();
  join.secret = *std::move(secret);
  join.addresses = addresses_to_tell(host);
  return {};
}

}  // namespace drun

#include "worker_lib/start/init_plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/text.h"

namespace drun::worker {
namespace {

Error usage(std::string message) { return Error{ErrorCode::Usage, std::move(message)}; }

constexpr long kMost = 1L << 30;

// --- The identity according to one engine's variables, complete or in part
//
// Source: mpirun(1), the proxies of Hydra (PMI_*, MPI_LOCAL*), srun(1).

struct RankNumbers {
  std::optional<int> rank = std::nullopt;
  std::optional<int> size = std::nullopt;
  std::optional<int> local_rank = std::nullopt;
  std::optional<int> local_size = std::nullopt;
  bool operator==(const RankNumbers&) const = default;
};

struct EngineReport {
  std::string_view engine;  // "Open MPI"
  bool is_mpi = true;       // an MPI launcher, which may run inside Slurm
  RankNumbers told = {};
  std::string missing = "";  // "PMI_SIZE, MPI_LOCALRANKID"; empty: nothing
  std::string wrong = "";    // the first invalid variable, as a sentence
  // The engine's name of this job, the same on all nodes; empty: none.
  std::string job = "";
  int node_rank = 0;
  int node_count = 1;

  bool is_whole() const { return missing.empty() && wrong.empty(); }
};

// The names of an engine's variables.
struct EngineVariables {
  std::string_view engine;
  bool is_mpi;
  std::string_view rank;
  std::string_view size;
  std::string_view local_rank;
  std::string_view local_size;
};

// PMIx has no variable but for the rank: the rest is asked of a server.
constexpr std::array kEngines = {
    EngineVariables{"Open MPI", true, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    EngineVariables{"Hydra", true, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    EngineVariables{"PMIx", true, "PMIX_RANK", "(the number of ranks)", "(the local rank)",
                    "(the number of local ranks)"},
    EngineVariables{"Slurm", false, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                    "SLURM_STEP_TASKS_PER_NODE"},
};

// The pseudo steps of Slurm, such as that of a batch script, have numbers from here on.
constexpr long kFirstSpecialStep = 0xFFFFFFF0;

std::string slurm_step(const Lookup& environment) {
  std::string step = text_of(environment, "SLURM_STEP_ID");
  if (step.empty()) step = text_of(environment, "SLURM_STEPID");
  const std::optional<long> id = whole_number<long>(step);
  return id && *id >= 0 && *id < kFirstSpecialStep ? step : "";
}

// Slurm's variables as if they were all of one kind, and nothing outside a step.
std::optional<std::string> slurm_variable(const Lookup& environment, std::string_view name) {
  if (slurm_step(environment).empty()) return std::nullopt;
  if (name == "SLURM_STEP_NUM_TASKS") {
    const std::string size = text_of(environment, name);
    return size.empty() ? environment("SLURM_NTASKS") : size;
  }
  if (name != "SLURM_STEP_TASKS_PER_NODE") return environment(name);
  std::string list = text_of(environment, name);
  if (list.empty()) list = text_of(environment, "SLURM_TASKS_PER_NODE");
  const std::optional<long> node = whole_number<long>(text_of(environment, "SLURM_NODEID"));
  if (list.empty() || !node || *node < 0 || *node > kMost) return std::nullopt;
  const std::optional<int> count = entry_of_counts(list, static_cast<int>(*node));
  return count ? std::to_string(*count) : list;  // what it says is wrong then
}

EngineReport read_engine(const EngineVariables& names, const Lookup& environment) {
  EngineReport report{.engine = names.engine, .is_mpi = names.is_mpi};
  const auto blame = [&](std::string_view name, const std::string& why) {
    if (report.wrong.empty()) report.wrong = std::string(name) + why;
  };
  const auto read = [&](std::string_view name, long least) -> std::optional<int> {
    const std::optional<std::string> text =
        names.is_mpi ? environment(name) : slurm_variable(environment, name);
    if (!text || text->empty()) {
      report.missing += (report.missing.empty() ? "" : ", ") + std::string(name);
      return std::nullopt;
    }
    const std::optional<long> value = whole_number<long>(*text);
    if (value && *value >= least && *value <= kMost) return static_cast<int>(*value);
    blame(name,
          "=\"" + *text + "\": expected a whole number from " + std::to_string(least) + " on");
    return std::nullopt;
  };
  const auto check = [&](std::string_view name, std::optional<int> value,
                         std::string_view limit_name, std::optional<int> limit) {
    if (value && limit && *value >= *limit)
      blame(name, " does not fit " + std::string(limit_name) + "=" + std::to_string(*limit));
  };
  RankNumbers& told = report.told;
  told.size = read(names.size, 1);
  told.rank = read(names.rank, 0);
  told.local_size = read(names.local_size, 1);
  told.local_rank = read(names.local_rank, 0);
  check(names.rank, told.rank, names.size, told.size);
  check(names.local_rank, told.local_rank, names.local_size, told.local_size);
  check(names.local_size, told.local_size ? std::optional(*told.local_size - 1) : std::nullopt,
        names.size, told.size);
  return report;
}

// The engine's name of this job, the same on all nodes; empty: none.
std::string job_of(std::string_view engine, const Lookup& environment) {
  if (engine == "Slurm") {
    return text_of(environment, "SLURM_JOB_ID") + "." + slurm_step(environment);
  }
  if (engine != "Open MPI") return "";
  const std::string job = text_of(environment, "PMIX_NAMESPACE");
  return job.empty() ? text_of(environment, "OMPI_MCA_ess_base_jobid") : job;
}

// True in a batch script or an allocation's shell: Slurm started the job here, but not this
// process.
bool is_outside_slurm_step(const Lookup& environment) {
  return !text_of(environment, "SLURM_JOB_ID").empty() && slurm_step(environment).empty();
}

// The engines that have set any variable, innermost first.
std::vector<EngineReport> read_engines(const Lookup& environment) {
  std::vector<EngineReport> reports;
  for (const EngineVariables& names : kEngines) {
    EngineReport report = read_engine(names, environment);
    if (report.told == RankNumbers{} && report.wrong.empty()) continue;
    report.job = job_of(report.engine, environment);
    if (!report.is_mpi) {
      const auto small = [&](const char* name, long otherwise) {
        const long value = whole_number<long>(text_of(environment, name)).value_or(otherwise);
        return static_cast<int>(std::clamp(value, 0L, kMost));
      };
      report.node_rank = small("SLURM_NODEID", 0);
      report.node_count = std::max(small("SLURM_STEP_NUM_NODES", 1), 1);
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

// "Open MPI's OMPI_COMM_WORLD_RANK says ..." would be long; the numbers and their owner do.
std::string place(const EngineReport& report) {
  const auto text = [](std::optional<int> number) {
    return number ? std::to_string(*number) : std::string("?");
  };
  return std::string(report.engine) + " rank " + text(report.told.rank) + " of " +
         text(report.told.size);
}

bool contradict(std::optional<int> left, std::optional<int> right) {
  return left && right && *left != *right;
}
bool contradict(const RankNumbers& left, const RankNumbers& right) {
  return contradict(left.rank, right.rank) || contradict(left.size, right.size) ||
         contradict(left.local_rank, right.local_rank) ||
         contradict(left.local_size, right.local_size);
}

Error half_told(const EngineReport& report) {
  return usage("of " + std::string(report.engine) +
               "'s variables these are not set: " + report.missing +
               "; start this program with mpirun, mpiexec, srun or drun, or set RANK, WORLD_SIZE, "
               "MASTER_ADDR and MASTER_PORT");
}

Error contradiction(const EngineReport& left, const EngineReport& right) {
  return usage("this process is " + place(left) + " and " + place(right) +
               ", and both cannot be: unset the variables of the one that did not start it, or "
               "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
}

// The innermost that is whole, if nothing inside it, and no other MPI launcher, says otherwise.
Result<EngineReport> choose(const std::vector<EngineReport>& reports) {
  for (const EngineReport& each : reports) {
    if (!each.wrong.empty()) return usage(each.wrong);
  }
  std::size_t at = 0;
  while (at < reports.size() && !reports[at].is_whole()) ++at;
  if (at == reports.size()) return half_told(reports.front());
  for (std::size_t other = 0; other < reports.size(); ++other) {
    const bool counts = other < at || (reports[other].is_mpi && reports[other].is_whole());
    if (counts && contradict(reports[other].told, reports[at].told)) {
      return contradiction(reports[other], reports[at]);
    }
  }
  return reports[at];
}

Result<std::uint16_t> port_from(const std::string& text) {
  const auto port = whole_number<std::uint16_t>(text);
  if (!port || *port == 0)
    return usage("MASTER_PORT=\"" + text + "\": expected a whole number from 1 to 65535");
  return *port;
}

Result<void> find_master(const Lookup& environment, const EngineReport& report, World& world) {
  // A world of one never goes there.
  const bool is_one_node = world.local_world_size == world.world_size;
  world.master_addr = text_of(environment, "MASTER_ADDR");
  if (world.master_addr.empty() && is_one_node) world.master_addr = "127.0.0.1";
  const std::string engine(report.engine);
  if (world.master_addr.empty()) {
    return usage(engine + " started " + std::to_string(world.local_world_size) + " of " +
                 std::to_string(world.world_size) +
                 " ranks on this node and does not tell where rank 0 is: export "
                 "MASTER_ADDR=<a name or address of rank 0's node> to all ranks");
  }
  const std::string port = text_of(environment, "MASTER_PORT");
  if (!port.empty()) {
    const Result<std::uint16_t> parsed = port_from(port);
    if (!parsed) return parsed.error();
    world.master_port = *parsed;
    return {};
  }
  if (world.run_id.empty() && world.world_size > 1) {
    return usage(engine +
                 " tells nothing from which all ranks could find the same port: export "
                 "MASTER_PORT=<a free port of rank 0's node> to all ranks");
  }
  world.master_port = derived_port(world.run_id);
  return {};
}

Result<WorkerIdentity> from_engine(const EngineReport& report, const Lookup& environment,
                                   const AncestorLookup& ancestor) {
  WorkerIdentity self;
  self.rank = *report.told.rank;
  self.local_rank = *report.told.local_rank;
  World& world = self.world;
  world.world_size = *report.told.size;
  world.local_world_size = *report.told.local_size;
  world.base_rank = self.rank - self.local_rank;
  world.role_base_rank = world.base_rank;
  world.role_world_size = world.world_size;
  world.node_rank = report.node_rank;
  world.node_count = report.node_count;
  world.use_agent_store = false;
  if (!report.job.empty()) world.run_id = std::string(report.engine) + " " + report.job;
  if (report.engine == "Hydra" && world.local_world_size == world.world_size && ancestor) {
    // Its ranks on a node are children of one process.
    const std::optional<int> proxy = ancestor("hydra_pmi_proxy");
    if (proxy) world.run_id = "Hydra " + std::to_string(*proxy);
  }
  if (const Result<void> found = find_master(environment, report, world); !found) {
    return found.error();
  }
  return self;
}

}  // namespace

std::optional<int> entry_of_counts(std::string_view list, int at) {
  long passed = 0;
  for (std::string_view entry : split(list, ',')) {
    long times = 1;
    const std::size_t open = entry.find("(x");
    if (open != std::string_view::npos) {
      if (entry.back() != ')') return std::nullopt;
      times = whole_number<long>(entry.substr(open + 2, entry.size() - open - 3)).value_or(0);
      entry = entry.substr(0, open);
    }
    const long count = whole_number<long>(entry).value_or(0);
    if (times < 1 || times > kMost || count < 1 || count > kMost) return std::nullopt;
    passed += times;
    if (at < passed) return static_cast<int>(count);
  }
  return std::nullopt;
}

Result<WorkerIdentity> identify(const Lookup& environment, const AncestorLookup& ancestor) {
  const std::vector<EngineReport> reports = read_engines(environment);
  const bool has_rank = !text_of(environment, "RANK").empty();
  const bool has_size = !text_of(environment, "WORLD_SIZE").empty();
  if (!has_rank && !has_size && !reports.empty()) {
    const Result<EngineReport> report = choose(reports);
    if (!report) return report.error();
    return from_engine(*report, environment, ancestor);
  }
  Result<WorkerIdentity> self = from_environment(environment);
  if (self) return self;
  Error error = self.error();
  if (has_rank != has_size && !reports.empty()) {
    error.message += std::string("; or unset ") + (has_rank ? "RANK" : "WORLD_SIZE") +
                     ", and the variables of " + std::string(reports.front().engine) + " count";
  } else if (!has_rank && !has_size && is_outside_slurm_step(environment)) {
    error.message += "; in a job of Slurm's, start it with srun";
  }
  return error;
}

// --- InitOptions::init_method

namespace {

Error unusable_method(std::string_view method, const std::string& sentence) {
  return usage("init_method \"" + std::string(method) + "\"" + sentence);
}

Result<void> read_query(std::string_view query, std::string_view whole, InitMethod& method) {
  if (query.size() > 1 && query.ends_with('&')) query.remove_suffix(1);
  if (query.empty()) return {};
  for (const std::string_view entry : split(query, '&')) {
    const std::size_t equals = entry.find('=');
    const std::string_view key = entry.substr(0, equals);
    if (equals == std::string_view::npos || (key != "rank" && key != "world_size")) {
      return unusable_method(whole,
                             ": \"" + std::string(entry) + "\" is neither rank=R nor world_size=N");
    }
    (key == "rank" ? method.rank : method.world_size) = std::string(entry.substr(equals + 1));
  }
  return {};
}

Result<void> read_tcp(std::string_view address, std::string_view whole, InitMethod& method) {
  const Result<Endpoint> endpoint = parse_endpoint(address, 0);
  if (!endpoint) {
    return with_context(endpoint.error(), "init_method \"" + std::string(whole) + "\"");
  }
  if (endpoint->port == 0 || endpoint->host.empty()) {
    return unusable_method(whole, " needs a host and a port: tcp://host:port");
  }
  method.store = *endpoint;
  return {};
}

// file:///path, or file://localhost/path as the standard for such addresses has it.
Result<void> read_file(std::string_view rest, std::string_view whole, InitMethod& method) {
  constexpr std::string_view kHere = "localhost/";
  if (rest.starts_with(kHere)) rest.remove_prefix(kHere.size() - 1);
  if (rest.empty() || rest.front() != '/' || rest.back() == '/') {
    return unusable_method(whole, " needs the whole path of a file: file:///tmp/my-job");
  }
  method.file_path = std::string(rest);
  return {};
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

Result<InitMethod> parse_init_method(std::string_view whole) {
  InitMethod method;
  std::string_view rest = whole;
  const std::size_t question = std::min(rest.find('?'), rest.size());
  const std::string_view query = rest.substr(std::min(question + 1, rest.size()));
  rest = rest.substr(0, question);
  Result<void> read{};
  if (take_prefix(rest, "tcp://")) {
    read = read_tcp(rest, whole, method);
  } else if (take_prefix(rest, "file://")) {
    read = read_file(rest, whole, method);
  } else if (!whole.empty() && (!take_prefix(rest, "env://") || !rest.empty())) {
    return unusable_method(whole, " is none of env://, tcp://host:port and file:///path");
  }
  if (!read) return read.error();
  if (read = read_query(query, whole, method); !read) return read.error();
  return method;
}

// --- The plan

namespace {

using Overlay = std::map<std::string, std::string, std::less<>>;

Lookup laid_over(const Overlay& overlay, const Lookup& environment) {
  return [&overlay, &environment](std::string_view name) -> std::optional<std::string> {
    const auto found = overlay.find(name);
    return found != overlay.end() ? found->second : environment(name);
  };
}

// The rank as given by the caller, in the form of the equivalent variables.
Overlay explicit_rank(const InitOptions& options, const InitMethod& method) {
  Overlay overlay;
  if (options.rank) overlay["RANK"] = std::to_string(*options.rank);
  if (options.world_size) overlay["WORLD_SIZE"] = std::to_string(*options.world_size);
  if (method.rank) overlay["RANK"] = *method.rank;
  if (method.world_size) overlay["WORLD_SIZE"] = *method.world_size;
  return overlay;
}

// Where the store is, in the same way. File and store of the caller's: an address to be reached at
// is all that is needed.
Overlay explicit_store(const InitOptions& options, const InitMethod& method,
                       const Lookup& environment) {
  Overlay overlay;
  if (method.store) {
    overlay["MASTER_ADDR"] = method.store->host;
    overlay["MASTER_PORT"] = std::to_string(method.store->port);
  } else if (method.file_path || options.store) {
    const std::string given = text_of(environment, "MASTER_ADDR");
    overlay["MASTER_ADDR"] = given.empty() || options.store ? "127.0.0.1" : given;
    overlay["MASTER_PORT"] = "1";  // never used
  }
  return overlay;
}

// The rank that the caller names. What else the environment tells belongs to it only if it tells
// the same rank.
Result<WorkerIdentity> named_by_caller(const Overlay& rank, const Overlay& store,
                                       const Lookup& environment, const AncestorLookup& ancestor) {
  Overlay all = store;
  all.insert(rank.begin(), rank.end());
  for (const char* others : {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
                             "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE"}) {
    all[others] = "";
  }
  all["ROLE_NAME"] = "default";
  Result<WorkerIdentity> self = from_environment(laid_over(all, environment));
  if (!self) return self;
  Result<WorkerIdentity> told = identify(laid_over(store, environment), ancestor);
  const bool is_same =
      told && told->rank == self->rank && told->world.world_size == self->world.world_size;
  return is_same ? told : self;
}

Result<WorkerIdentity> find_identity(const InitOptions& options, const InitMethod& method,
                                     const Lookup& environment, const AncestorLookup& ancestor) {
  const Overlay rank = explicit_rank(options, method);
  const Overlay store = explicit_store(options, method, environment);
  if (rank.size() == 2) return named_by_caller(rank, store, environment, ancestor);
  if (rank.size() == 1) {
    return usage("rank and world_size belong together: init_process_group was given only " +
                 std::string(rank.count("RANK") > 0 ? "rank" : "world_size"));
  }
  if (options.store) return usage("a store that you pass needs rank and world_size in InitOptions");
  Result<WorkerIdentity> told = identify(laid_over(store, environment), ancestor);
  if (told || store.empty()) return told;
  return with_context(told.error(), "init_method \"" + options.init_method +
                                        "\" needs ?rank=R&world_size=N, or an environment that "
                                        "tells them, or InitOptions that do");
}

}  // namespace

Result<InitPlan> plan_init(const InitOptions& options, const Lookup& environment,
                           const AncestorLookup& ancestor) {
  const std::string method_text = options.store ? "env://" : options.init_method;
  const Result<InitMethod> method = parse_init_method(method_text);
  if (!method) return method.error();
  if (options.timeout.count() <= 0) {
    return usage("InitOptions::timeout of " + std::to_string(options.timeout.count()) +
                 " ms leaves no time; give at least 1 ms");
  }
  const Result<WorkerIdentity> self = find_identity(options, *method, environment, ancestor);
  if (!self) return self.error();
  InitPlan plan{.self = *self};
  const World& world = plan.self.world;
  if (method->file_path) {
    plan.file_path = *method->file_path;
    // What died with the round before has left its file behind.
    if (world.round > 0) plan.file_path += "." + std::to_string(world.round);
    return plan;
  }
  const bool is_agents =
      world.use_agent_store &&
      (!method->store ||
       (text_of(environment, "MASTER_ADDR") == world.master_addr &&
        text_of(environment, "MASTER_PORT") == std::to_string(world.master_port)));
  plan.hosts_store = !options.store && !is_agents && plan.self.rank == 0 && world.world_size > 1;
  return plan;
}

}  // namespace drun::worker

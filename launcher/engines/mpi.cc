#include "launcher/engines/detect.h"

#include <algorithm>
#include <vector>

#include "launcher/engines/engine_facts.h"
#include "rendezvous/net/endpoint.h"

namespace drun::engines {
namespace {

struct Names {
  const char* engine;
  const char* meeting;  // the protocol by which its processes exchange a text
  const char* rank;
  const char* size;
  const char* local_size;
  const char* export_option;  // passes a variable to all ranks
  const char* one_per_machine;
};

constexpr Names kOpenMpi{.engine = "Open MPI",
                         .meeting = "PMIx",
                         .rank = "OMPI_COMM_WORLD_RANK",
                         .size = "OMPI_COMM_WORLD_SIZE",
                         .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
                         .export_option = "mpirun -x MASTER_ADDR=HOST",
                         .one_per_machine = "mpirun --map-by ppr:1:node"};
constexpr Names kHydra{.engine = "PMI (Hydra)",
                       .meeting = "PMI",
                       .rank = "PMI_RANK",
                       .size = "PMI_SIZE",
                       .local_size = "MPI_LOCALNRANKS",
                       .export_option = "mpiexec -genv MASTER_ADDR HOST",
                       .one_per_machine = "mpiexec -ppn 1"};

constexpr Names kPmix{.engine = "PMIx",
                      .meeting = "PMIx",
                      .rank = "PMIX_RANK",
                      .size = "",
                      .local_size = "",
                      .export_option = "MASTER_ADDR=HOST into the environment",
                      .one_per_machine = ""};

void read_ranks(Reading& reading, const Names& names, Facts& facts) {
  facts.nodes = reading.needed_number(names.size, 1);
  facts.node_rank = reading.needed_number(names.rank, 0);
  if (facts.nodes && facts.node_rank && facts.node_rank->value >= facts.nodes->value) {
    reading.blame(facts.node_rank->from + "=" + std::to_string(facts.node_rank->value) +
                  " is not under " + facts.nodes->from + "=" + std::to_string(facts.nodes->value) +
                  "; unset them, or give --nnodes, --node-rank and --master-addr");
  }
}

std::optional<EngineFact<std::string>> first_host_of_job(const EngineContext& context) {
  if (auto host = slurm_first_host(context)) return host;
  if (auto host = pbs_first_host(context)) return host;
  return lsf_first_host(context);
}

// The machine of Open MPI 4's mpirun: the IPv4 address in "529989632.0;tcp://192.0.2.2:32903". With
// several addresses it is unknown which one other machines can reach.
std::optional<EngineFact<std::string>> mpirun_host(const Reading& reading) {
  const auto uri = reading.text("OMPI_MCA_orte_hnp_uri");
  constexpr std::string_view kScheme = ";tcp://";
  const std::size_t at = uri ? uri->value.find(kScheme) : std::string::npos;
  if (at == std::string::npos) return std::nullopt;
  std::string address = uri->value.substr(at + kScheme.size());
  address = address.substr(0, address.find(':'));
  const bool is_one = address.find_first_not_of("0123456789.") == address.npos;
  if (address.empty() || !is_one || is_loopback(address)) return std::nullopt;
  return EngineFact<std::string>{address, uri->from};
}

// Whether mpirun itself started this process, not one of its daemons on another machine.
bool is_with_mpirun(const Reading& reading) {
  const auto daemon = reading.text("OMPI_MCA_orte_local_daemon_uri");
  const auto mpirun = reading.text("OMPI_MCA_orte_hnp_uri");
  return daemon && mpirun && daemon->value == mpirun->value;
}

bool is_reachable(const std::string& address) {
  return !is_loopback(address) && !address.starts_with("169.254.") && !address.starts_with("fe80");
}

// An address of this machine for others: its name, if it resolves to an address of an interface, or
// else its address, if it has only one. Empty if unknown.
std::string own_place(const EngineContext& context) {
  const auto& own = context.addresses;
  const auto is_own = [&own](const std::string& address) {
    return is_reachable(address) && std::find(own.begin(), own.end(), address) != own.end();
  };
  const std::vector<std::string> named =
      context.addresses_of ? context.addresses_of(context.hostname) : std::vector<std::string>();
  if (std::any_of(named.begin(), named.end(), is_own)) return context.hostname;
  const auto is_candidate = [](const std::string& address) {
    return is_reachable(address) && address.find(':') == address.npos;
  };
  if (std::count_if(own.begin(), own.end(), is_candidate) != 1) return "";
  return *std::find_if(own.begin(), own.end(), is_candidate);
}

// Rank 0 sends "PLACE/JOB" to all ranks: its address, and a unique name of the job.
void meet(Reading& reading, const EngineContext& context, const Names& names, Facts& facts) {
  if (!context.meeting || !facts.node_rank || !facts.wrong.empty()) return;
  std::optional<std::string> own_text;
  if (facts.node_rank->value == 0) own_text = own_place(context) + "/" + context.random_id;
  const Result<MeetingResult> met = context.meeting(own_text);
  if (!met && met.error().code == ErrorCode::Unreachable) return;
  const std::size_t slash = met ? met->text.find('/') : std::string::npos;
  if (slash == std::string::npos) {
    return reading.blame(std::string("the ranks cannot meet over ") + names.meeting + ": " +
                         (met ? "\"" + met->text.substr(0, 80) + "\" is not what rank 0 sends"
                              : met.error().message) +
                         "; write " + names.export_option + ", or give --master-addr");
  }
  const std::string from = std::string(names.meeting) + ", from rank 0";
  if (slash > 0) facts.master_addr = EngineFact<std::string>{met->text.substr(0, slash), from};
  const auto id = run_id_from("mpi-", met->text.substr(slash + 1));
  if (id && !facts.run_id) facts.run_id = EngineFact<std::string>{*id, from};
  if (met->processes > 0 && !facts.nodes)
    facts.nodes = EngineFact<int>{met->processes, names.meeting};
}

bool is_this_machine(const EngineContext& context, const std::string& host) {
  const auto slurms = context.variables("SLURMD_NODENAME");
  return short_name(host) == short_name(context.hostname) || (slurms && host == *slurms);
}

bool is_one_machine(Reading& reading, const Names& names, const Facts& facts) {
  const std::optional<EngineFact<int>> local = reading.number(names.local_size, 1);
  return local && facts.nodes && local->value == facts.nodes->value;
}

void find_master(Reading& reading, const EngineContext& context, const Names& names, Facts& facts) {
  const std::string remedy = std::string(names.export_option) +
                             " (the machine of rank 0, as the others reach it), or --master-addr";
  const std::optional<EngineFact<int>> local = reading.number(names.local_size, 1);
  const bool is_one = is_one_machine(reading, names, facts);
  const auto given = reading.text("MASTER_ADDR");
  if (given && is_loopback(given->value) && local && !is_one) {
    reading.blame(shown(*given) + " is every machine itself, but only " +
                  std::to_string(local->value) + " of the ranks are on this one; write " + remedy);
  }
  if (given) facts.master_addr = given;
  if (given) return;
  if (is_one) {
    facts.master_addr =
        EngineFact<std::string>{"127.0.0.1", local->from + ": all are on this machine"};
    return;
  }
  if (facts.master_addr) {  // received from rank 0
    facts.is_slurm_name = slurm_first_host(context).has_value();
    return;
  }
  facts.no_master = "it does not report where rank 0 is; write " + remedy;
  const bool is_first = facts.node_rank && facts.node_rank->value == 0;
  if (const auto first = first_host_of_job(context)) {
    facts.master_addr = first;
    facts.is_slurm_name = slurm_first_host(context).has_value();
    if (is_first && !is_this_machine(context, first->value)) {
      reading.blame("rank 0 is on " + context.hostname + ", but the first host of " + first->from +
                    " is " + first->value + "; write " + remedy);
    }
  } else if (const auto mpirun = mpirun_host(reading)) {
    facts.master_addr = mpirun;
    if (is_first && !is_with_mpirun(reading)) {
      reading.blame("rank 0 is on " + context.hostname + ", which is not where mpirun runs (" +
                    mpirun->value + "); write " + remedy);
    }
  }
}

void find_port(Reading& reading, Facts& facts) {
  constexpr int kMostPort = 65535;
  facts.master_port = reading.number("MASTER_PORT", 1);
  if (facts.master_port && facts.master_port->value > kMostPort)
    reading.blame("MASTER_PORT=" + std::to_string(facts.master_port->value) + " is not a port");
  if (!facts.run_id) return;
  const std::string& id = facts.run_id->value;
  if (!facts.master_port) facts.master_port = EngineFact<int>{derived_port(id), facts.run_id->from};
  facts.meeting_port = EngineFact<int>{derived_port(id + " meeting"), facts.run_id->from};
}

void remark_neighbors(Reading& reading, const Names& names, Facts& facts) {
  const std::optional<EngineFact<int>> local = reading.number(names.local_size, 1);
  const bool is_first = facts.node_rank && facts.node_rank->value == 0;
  if (!is_first || !local || local->value == 1) return;  // log it once per job
  facts.warnings.push_back(
      std::to_string(local->value) +
      " drun agents on this machine, each with separate workers whose LOCAL_RANK begins at 0; "
      "for one agent a machine write " +
      names.one_per_machine + " drun --nproc-per-node=" + std::to_string(local->value));
}

}  // namespace

bool is_started_within_step(const EngineContext& context) {
  Facts facts;
  const Reading reading(context, facts);
  return reading.is_set(kOpenMpi.rank) || reading.is_set("MPI_LOCALRANKID");
}

std::optional<Facts> open_mpi(const EngineContext& context) {
  Facts facts;
  Reading reading(context, facts);
  if (!reading.is_set(kOpenMpi.rank) && !reading.is_set(kOpenMpi.size)) return std::nullopt;
  facts.engine = kOpenMpi.engine;
  read_ranks(reading, kOpenMpi, facts);
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}) {
    const auto job = reading.text(name);
    const auto id = job ? run_id_from("mpi-", job->value) : std::nullopt;
    if (id && !facts.run_id) facts.run_id = EngineFact<std::string>{*id, name};
  }
  // Open MPI names the job already, so exchange only the address, and only if it is unknown.
  if (facts.nodes && !reading.is_set("MASTER_ADDR") && !is_one_machine(reading, kOpenMpi, facts))
    meet(reading, context, kOpenMpi, facts);
  find_master(reading, context, kOpenMpi, facts);
  find_port(reading, facts);
  remark_neighbors(reading, kOpenMpi, facts);
  return facts;
}

std::optional<Facts> hydra(const EngineContext& context) {
  Facts facts;
  Reading reading(context, facts);
  if (!reading.is_set(kHydra.rank) && !reading.is_set(kHydra.size) && !reading.is_set("PMI_ID"))
    return std::nullopt;
  facts.engine = kHydra.engine;
  read_ranks(reading, kHydra, facts);
  if (facts.nodes && !reading.is_set("MASTER_ADDR")) meet(reading, context, kHydra, facts);
  find_master(reading, context, kHydra, facts);
  find_port(reading, facts);
  remark_neighbors(reading, kHydra, facts);
  return facts;
}

std::optional<Facts> pmix(const EngineContext& context) {
  Facts facts;
  Reading reading(context, facts);
  if (!reading.is_set("PMIX_RANK")) return std::nullopt;
  facts.engine = kPmix.engine;
  facts.node_rank = reading.number(kPmix.rank, 0);
  if (const auto job = reading.text("PMIX_NAMESPACE")) {
    if (const auto id = run_id_from("pmix-", job->value))
      facts.run_id = EngineFact<std::string>{*id, job->from};
  }
  meet(reading, context, kPmix, facts);
  if (const auto given = reading.text("MASTER_ADDR")) facts.master_addr = given;
  if (!facts.nodes) reading.miss("the number of processes (no variable has it: give --nnodes)");
  if (!facts.master_addr)
    facts.no_master = "it does not report where rank 0 is; give --master-addr or set MASTER_ADDR";
  find_port(reading, facts);
  return facts;
}

}  // namespace drun::engines

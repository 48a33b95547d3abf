// core. The fields of everything that launcher and agent send each other, in the order on the wire.
//
// fields() serves both directions. Its structured bindings name every member, so that a new member
// does not compile until it is listed; members that are not returned belong to one side only. Raise
// kProtocol (agent_protocol.h) with every change.
#pragma once

#include <concepts>
#include <tuple>
#include <type_traits>
#include <utility>

#include "agent/faults.h"
#include "agent/spec.h"
#include "launcher/facts/host.h"
#include "launcher/facts/topology.h"
#include "launcher/plan/node_plan.h"
#include "launcher/plan/plan.h"
#include "launcher/remote/agent_protocol.h"
#include "launcher/remote/meeting.h"
#include "launcher/report/report.h"
#include "rendezvous/job/join_spec.h"
#include "rendezvous/job/restart_policy.h"
#include "rendezvous/net/endpoint.h"
#include "rendezvous/tls/secret.h"

namespace drun::hosts {

template <typename T, typename Struct>
concept Is = std::same_as<std::remove_const_t<T>, Struct>;

// --- Enumerations: the last value

constexpr MemoryPolicy last(MemoryPolicy) { return MemoryPolicy::Strict; }
constexpr OutputMode last(OutputMode) { return OutputMode::Json; }
constexpr StdinSource last(StdinSource) { return StdinSource::Inherited; }
constexpr LeftoverPolicy last(LeftoverPolicy) { return LeftoverPolicy::Keep; }
constexpr FaultKind last(FaultKind) { return FaultKind::CutNode; }
constexpr StoreHost last(StoreHost) { return StoreHost::Worker; }
constexpr RankOrder last(RankOrder) { return RankOrder::Arrival; }
constexpr ExitCodeStyle last(ExitCodeStyle) { return ExitCodeStyle::Torchrun; }
constexpr LogLevel last(LogLevel) { return LogLevel::Error; }
constexpr FileKind last(FileKind) { return FileKind::Executable; }

// --- Types of several messages

template <typename One, typename Other>
auto fields(std::pair<One, Other>& value) {
  return std::tie(value.first, value.second);
}
template <typename One, typename Other>
auto fields(const std::pair<One, Other>& value) {
  return std::tie(value.first, value.second);
}
// Secret::make() is the reverse.
inline auto fields(const Secret& value) { return std::tie(value.bytes(), value.from()); }
auto fields(Is<Endpoint> auto& value) {
  auto& [host, port] = value;
  return std::tie(host, port);
}

// --- Facts

auto fields(Is<Cpu> auto& value) {
  auto& [cpu, core, cache, package, memory_node, is_allowed] = value;
  return std::tie(cpu, core, cache, package, memory_node, is_allowed);
}
auto fields(Is<Gpu> auto& value) {
  auto& [pci_address, uuid, memory_node] = value;
  return std::tie(pci_address, uuid, memory_node);
}
auto fields(Is<Topology> auto& value) {
  auto& [cpus, memory_nodes, gpus] = value;
  return std::tie(cpus, memory_nodes, gpus);
}
// What the plan of a node reads. The rest is about the launcher's own console, secrets and network.
auto fields(Is<HostFacts> auto& value) {
  auto& [hostname, usable_cpus, cpus, gpus, installed_gpus, gpu_variable, environment, exports,
         launched, working_directory, own_folder, random_id, utc_offset, has_terminal, columns,
         addresses, interfaces, addresses_of, slurm_addresses, source_address, topology, probe,
         meeting, secret_file, new_secret, free_port, machine_id, file_text] = value;
  return std::tie(hostname, usable_cpus, cpus, gpus, installed_gpus, gpu_variable, environment,
                  working_directory, own_folder, addresses);
}
auto fields(Is<Lookups> auto& value) {
  auto& [paths, has_topology] = value;
  return std::tie(paths, has_topology);
}
auto fields(Is<LookupAnswers> auto& value) {
  auto& [files, topology, topology_problem] = value;
  return std::tie(files, topology, topology_problem);
}
auto fields(Is<HostReport> auto& value) {
  auto& [facts, answers] = value;
  return std::tie(facts, answers);
}

// --- The spec of an agent

auto fields(Is<WorkerPlacement> auto& value) {
  auto& [cpus, cores, memory_nodes, memory, omp_threads, devices] = value;
  return std::tie(cpus, cores, memory_nodes, memory, omp_threads, devices);
}
auto fields(Is<StreamPlan> auto& value) {
  auto& [to_file, to_console, is_labeled] = value;
  return std::tie(to_file, to_console, is_labeled);
}
// The agent sets channel_fd.
auto fields(Is<OutputSpec> auto& value) {
  auto& [mode, streams, label_template, has_timestamps, gathers, gathers_by_channel, channel_fd,
         duplicate_stdout_filters, duplicate_stderr_filters, log_dir] = value;
  return std::tie(mode, streams, label_template, has_timestamps, gathers, gathers_by_channel,
                  duplicate_stdout_filters, duplicate_stderr_filters, log_dir);
}
auto fields(Is<WrapSpec> auto& value) {
  auto& [argv, ranks] = value;
  return std::tie(argv, ranks);
}
auto fields(Is<ProgramSpec> auto& value) {
  auto& [role, workers, argv, arguments_at, environment] = value;
  return std::tie(role, workers, argv, arguments_at, environment);
}
auto fields(Is<PreloadSpec> auto& value) {
  auto& [modules, import_timeout] = value;
  return std::tie(modules, import_timeout);
}
auto fields(Is<WorkerSpec> auto& value) {
  auto& [argv, substitutes_local_rank, passes_local_rank, program_arguments_at, programs,
         environment, virtual_local_rank, stdin_source, wrap, placements, device_variable,
         preload] = value;
  return std::tie(argv, substitutes_local_rank, passes_local_rank, program_arguments_at, programs,
                  environment, virtual_local_rank, stdin_source, wrap, placements, device_variable,
                  preload);
}
auto fields(Is<DeadlineSpec> auto& value) {
  auto& [end, limit, slurm_job, signal_before, signal, reason] = value;
  return std::tie(end, limit, slurm_job, signal_before, signal, reason);
}
auto fields(Is<Fault> auto& value) {
  auto& [kind, target, code, round, after, text] = value;
  return std::tie(kind, target, code, round, after, text);
}
auto fields(Is<RandomFaults> auto& value) {
  auto& [seed, every, text] = value;
  return std::tie(seed, every, text);
}
auto fields(Is<FaultPlan> auto& value) {
  auto& [faults, random, cut_interface] = value;
  return std::tie(faults, random, cut_interface);
}
auto fields(Is<KnownAddresses> auto& value) {
  auto& [endpoint, addresses, has_loopback] = value;
  return std::tie(endpoint, addresses, has_loopback);
}
auto fields(Is<CertificateFiles> auto& value) {
  auto& [certificate, key, authorities] = value;
  return std::tie(certificate, key, authorities);
}
auto fields(Is<EtcdSpec> auto& value) {
  auto& [endpoints, is_https, files, prefix, stands] = value;
  return std::tie(endpoints, is_https, files, prefix, stands);
}
auto fields(Is<ElasticSpec> auto& value) {
  auto& [min_nodes, rank_order, last_call_timeout, min_uptime, exclude_after, exclude_slow] = value;
  return std::tie(min_nodes, rank_order, last_call_timeout, min_uptime, exclude_after,
                  exclude_slow);
}
auto fields(Is<RoleShare> auto& value) {
  auto& [role, workers] = value;
  return std::tie(role, workers);
}
auto fields(Is<ExitKinds> auto& value) {
  auto& [codes, signals, faults] = value;
  return std::tie(codes, signals, faults);
}
// The agent sets diagnose.
auto fields(Is<RestartPolicy> auto& value) {
  auto& [window, per_progress, pause, most_pause, only_on, never_on, startup_time, startup_pause,
         max_same_failures, diagnose] = value;
  return std::tie(window, per_progress, pause, most_pause, only_on, never_on, startup_time,
                  startup_pause, max_same_failures);
}
// The agent sets listening and make_stack_answers.
auto fields(Is<JoinSpec> auto& value) {
  auto& [run_id, node_rank, node_count, elastic, slot, local_world_size, role, roles, endpoint,
         is_coordinator, listening, book, reach_timeout, seats, own_seats, seat, etcd,
         may_be_member, master_addr, master_port, store_host, store_memory_bytes, max_restarts,
         restart, preflight, join_timeout, heartbeat_timeout, kill_grace, has_private_network,
         secret, addresses, shows_progress, gathers_lines, make_stack_answers] = value;
  return std::tie(run_id, node_rank, node_count, elastic, slot, local_world_size, role, roles,
                  endpoint, is_coordinator, book, reach_timeout, seats, own_seats, seat, etcd,
                  may_be_member, master_addr, master_port, store_host, store_memory_bytes,
                  max_restarts, restart, preflight, join_timeout, heartbeat_timeout, kill_grace,
                  has_private_network, secret, addresses, shows_progress, gathers_lines);
}
// The agent sets lifeline.
auto fields(Is<AgentSpec> auto& value) {
  auto& [join, worker, preflight_argv, output, host, shutdown_timeout, unkillable_timeout,
         leftovers, hang_timeout, speed_window, deadline, checkpoint_directory, termination_signals,
         events_file, keeps_events, drun_version, web, faults, error_file, lifeline] = value;
  return std::tie(join, worker, preflight_argv, output, host, shutdown_timeout, unkillable_timeout,
                  leftovers, hang_timeout, speed_window, deadline, checkpoint_directory,
                  termination_signals, events_file, keeps_events, drun_version, web, faults,
                  error_file);
}
// The launcher uses the rest.
auto fields(Is<Plan> auto& value) {
  auto& [agent, origins, is_doctor, explain, cannot_start, report_file, html_report_file,
         exit_codes, requeues, dry_run, log_level, notes, warnings] = value;
  return std::tie(agent, is_doctor, exit_codes, log_level, notes, warnings);
}
auto fields(Is<ReportStyle> auto& value) {
  auto& [invoked_as, has_color, has_shown_stderr, columns, utc_offset, log_directory, report_file] =
      value;
  return std::tie(invoked_as, has_color, has_shown_stderr, columns, utc_offset, log_directory,
                  report_file);
}

// --- Messages

auto fields(Is<Start> auto& value) {
  auto& [nonce, directory, devices, cpus, scratch, lookups] = value;
  return std::tie(nonce, directory, devices, cpus, scratch, lookups);
}
auto fields(Is<NodeSpec> auto& value) {
  auto& [plan, style, removed_variables, listens, has_own_address, has_master_port] = value;
  return std::tie(plan, style, removed_variables, listens, has_own_address, has_master_port);
}
auto fields(Is<Place> auto& value) {
  auto& [port, master_port, addresses] = value;
  return std::tie(port, master_port, addresses);
}
auto fields(Is<Hello> auto& value) {
  auto& [problem, exit_code, place, machine] = value;
  return std::tie(problem, exit_code, place, machine);
}
auto fields(Is<Go> auto& value) {
  auto& [places, is_one_machine] = value;
  return std::tie(places, is_one_machine);
}
auto fields(Is<End> auto& value) {
  auto& [exit_code, text, report, could_not_reach, events] = value;
  return std::tie(exit_code, text, report, could_not_reach, events);
}
auto fields(Is<RelayStart> auto& value) {
  auto& [argv, name, first_line, nonce] = value;
  return std::tie(argv, name, first_line, nonce);
}

}  // namespace drun::hosts

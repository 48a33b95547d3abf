// core. The fields of everything that launcher and agent send each other, in the order on the wire.
//
// fields() serves both directions. It binds every member, so that a struct with a new member does
// not compile until it is counted or listed here. Members that are not returned belong to one side
// only. Raise kProtocol (agent_protocol.h) with every change.
#pragma once

#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "agent/faults.h"
#include "agent/spec.h"
#include "launcher/facts/host.h"
#include "launcher/facts/topology.h"
#include "launcher/hosts/node_plan.h"
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

// --- Structs whose members are all sent: their number

template <typename T, typename... Structs>
inline constexpr bool kIsOneOf = (std::same_as<T, Structs> || ...);
template <typename T>
inline constexpr std::size_t kMembers =
    kIsOneOf<T, Endpoint, Go, HostReport, Lookups, PreloadSpec, RoleShare, WrapSpec> ? 2
    : kIsOneOf<T, CertificateFiles, ExitKinds, FaultPlan, Gpu, KnownAddresses, LookupAnswers, Place,
               RandomFaults, StreamPlan, Topology>
        ? 3
    : std::same_as<T, Hello>                                                               ? 4
    : kIsOneOf<T, End, EtcdSpec, ProgramSpec>                                              ? 5
    : kIsOneOf<T, Cpu, DeadlineSpec, ElasticSpec, Fault, NodeSpec, Start, WorkerPlacement> ? 6
                                                                                           : 0;
template <typename One, typename Other>
inline constexpr std::size_t kMembers<std::pair<One, Other>> = 2;

template <typename T>
requires(kMembers<std::remove_const_t<T>> > 0) auto fields(T& value) {
  constexpr std::size_t kCount = kMembers<std::remove_const_t<T>>;
  if constexpr (kCount == 2) {
    auto& [a, b] = value;
    return std::tie(a, b);
  } else if constexpr (kCount == 3) {
    auto& [a, b, c] = value;
    return std::tie(a, b, c);
  } else if constexpr (kCount == 4) {
    auto& [a, b, c, d] = value;
    return std::tie(a, b, c, d);
  } else if constexpr (kCount == 5) {
    auto& [a, b, c, d, e] = value;
    return std::tie(a, b, c, d, e);
  } else {
    auto& [a, b, c, d, e, f] = value;
    return std::tie(a, b, c, d, e, f);
  }
}

// --- Other structs

// Secret::make() is the reverse.
inline auto fields(const Secret& value) { return std::tie(value.bytes(), value.from()); }
// The plan of a node reads these. The rest is about the launcher's console, secrets and network.
auto fields(Is<HostFacts> auto& value) {
  auto& [hostname, usable_cpus, cpus, gpus, installed_gpus, gpu_variable, environment, exports,
         launched, working_directory, own_folder, drun_version, random_id, utc_offset, has_terminal,
         columns, addresses, interfaces, addresses_of, slurm_addresses, source_address, topology,
         probe, meeting, secret_file, new_secret, free_port, machine_id, file_text] = value;
  return std::tie(hostname, usable_cpus, cpus, gpus, installed_gpus, gpu_variable, environment,
                  working_directory, own_folder, drun_version, addresses);
}

// The agent sets timeouts.
auto fields(Is<ReportStyle> auto& value) {
  auto& [invoked_as, has_color, has_shown_stderr, columns, utc_offset, log_directory, report_file,
         timeouts] = value;
  return std::tie(invoked_as, has_color, has_shown_stderr, columns, utc_offset, log_directory,
                  report_file);
}
// The agent sets channel_fd.
auto fields(Is<OutputSpec> auto& value) {
  auto& [mode, streams, label_template, has_timestamps, gathers, gathers_by_channel, channel_fd,
         duplicate_stdout_filters, duplicate_stderr_filters, log_dir] = value;
  return std::tie(mode, streams, label_template, has_timestamps, gathers, gathers_by_channel,
                  duplicate_stdout_filters, duplicate_stderr_filters, log_dir);
}
auto fields(Is<WorkerSpec> auto& value) {
  auto& [argv, substitutes_local_rank, passes_local_rank, program_arguments_at, programs,
         environment, virtual_local_rank, stdin_source, wrap, placements, device_variable,
         preload] = value;
  return std::tie(argv, substitutes_local_rank, passes_local_rank, program_arguments_at, programs,
                  environment, virtual_local_rank, stdin_source, wrap, placements, device_variable,
                  preload);
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

}  // namespace drun::hosts

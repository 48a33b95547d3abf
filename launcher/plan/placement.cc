#include "launcher/base/words.h"
#include "launcher/plan/plan.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "launcher/cli/option_values.h"
#include "launcher/facts/visible_gpus.h"
#include "launcher/placement/place.h"
#include "launcher/plan/programs.h"

namespace drun {
namespace {

// As the user wrote it.
std::string bind_to_option(BindTo bind_to) {
  return "--bind-to=" + std::string(option_word(kBindToWords, bind_to));
}
std::string numa_binding_option(BindTo bind_to) {
  return "--numa-binding=" + std::string(option_word(kNumaBindingWords, bind_to));
}

// Valid CUDA_VISIBLE_DEVICES entries for workers. If no GPU is found, the user's list is trusted,
// because drun does not detect every kind of GPU.
std::vector<std::string> device_names(const HostFacts& host) {
  const std::optional<std::string> list = workers_variable(host, host.gpu_variable);
  if (!list) return visible_gpu_names(list, unnamed_gpus(static_cast<std::size_t>(host.gpus)));
  if (host.installed_gpus.empty()) return trusted_gpu_names(*list);
  return visible_gpu_names(list, unnamed_gpus(host.installed_gpus.size()));
}

Result<void> give_devices(std::vector<WorkerPlacement>& places, const std::vector<int>& gpus,
                          const HostFacts& host) {
  const bool is_same = std::equal(gpus.begin() + 1, gpus.end(), gpus.begin());
  const std::string option =
      "--gpus-per-worker" + (is_same ? "=" + std::to_string(gpus.front()) : "");
  const std::vector<std::string> names = device_names(host);
  const auto needed =
      static_cast<std::size_t>(std::accumulate(gpus.begin(), gpus.end(), std::int64_t{0}));
  if (needed > names.size()) {
    return usage_error(
        option, counted(places.size(), "worker") + (places.size() == 1 ? " needs " : " need ") +
                    counted(needed, "GPU") + ", and " + std::to_string(names.size()) +
                    " are visible on " + host.hostname + "; start fewer workers, or check " +
                    host.gpu_variable);
  }
  auto next = names.begin();
  for (std::size_t i = 0; i < places.size(); ++i) {
    places[i].devices.assign(next, next + gpus[i]);
    next += gpus[i];
  }
  return {};
}

struct Asked {
  BindTo bind_to = BindTo::None;
  std::string option{};  // as the user wrote it
};

Result<Asked> asked_binding(const Options& options) {
  if (options.bind_to && options.numa_binding) {
    return usage_error(
        numa_binding_option(*options.numa_binding),
        bind_to_option(*options.bind_to) + " binds in another way; remove one of them");
  }
  Asked asked;
  if (options.bind_to) asked = {*options.bind_to, bind_to_option(*options.bind_to)};
  if (options.numa_binding)
    asked = {*options.numa_binding, numa_binding_option(*options.numa_binding)};
  if (options.bind_memory && asked.bind_to == BindTo::None) {
    return usage_error(std::string("--bind-memory=") + to_string(*options.bind_memory),
                       "no worker is bound; set --bind-to or --numa-binding as well");
  }
  return asked;
}

Result<std::vector<WorkerPlacement>> bound_places(const Topology& topology, const Asked& asked,
                                                  const Options& options, const HostFacts& host,
                                                  int workers) {
  PlacementRequest wish{.bind_to = asked.bind_to,
                        .memory = options.bind_memory.value_or(MemoryPolicy::Prefer),
                        .workers = workers,
                        .gpus_of = gpus_of_workers(options, workers)};
  if (host.gpus > 0) wish.gpus = gpus_named(device_names(host), host.installed_gpus);
  Result<std::vector<WorkerPlacement>> places = place_workers(topology, wish);
  if (!places) return usage_error(asked.option, places.error().message);
  return places;
}

void remark_unplaced_memory(const std::vector<WorkerPlacement>& places, const Options& options,
                            PlanNotes& notes) {
  if (options.bind_memory.value_or(MemoryPolicy::Prefer) == MemoryPolicy::None) return;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i].cpus.empty() || !places[i].memory_nodes.empty()) continue;
    notes.warnings.push_back("local rank " + std::to_string(i) +
                             ": this process may not use the memory near CPUs " +
                             ranges_text(places[i].cpus) + "; its memory is not bound");
    return;
  }
}

Result<void> plan_wrap(WrapSpec& wrap, const Options& options, const JoinSpec& join) {
  if (!options.wrap) {
    if (!options.wrap_ranks) return {};
    return usage_error("--wrap-ranks", "it requires --wrap");
  }
  wrap.argv = *options.wrap;
  wrap.ranks = options.wrap_ranks.value_or(std::vector<int>{});
  for (const int rank : wrap.ranks) {
    if (join.node_count > 1 || rank < join.local_world_size) continue;
    return usage_error("--wrap-ranks", "there is no rank " + std::to_string(rank) +
                                           "; ranks are 0 to " +
                                           std::to_string(join.local_world_size - 1));
  }
  return {};
}

}  // namespace

Result<void> plan_placement(WorkerSpec& worker, const Options& options, const HostFacts& host,
                            const JoinSpec& join, PlanNotes& notes) {
  if (Result<void> wrap = plan_wrap(worker.wrap, options, join); !wrap) return wrap.error();
  const Result<Asked> asked = asked_binding(options);
  if (!asked) return asked.error();
  const bool is_auto =
      options.omp_threads && std::holds_alternative<AutoThreads>(*options.omp_threads);
  const std::vector<int> gpus = gpus_of_workers(options, join.local_world_size);
  if (asked->bind_to == BindTo::None && !options.omp_threads && gpus.empty()) return {};

  std::vector<WorkerPlacement> places(static_cast<std::size_t>(join.local_world_size));
  if (asked->bind_to != BindTo::None || is_auto) {
    const Result<Topology> topology = host.topology();
    if (!topology) return topology.error();
    auto bound = bound_places(*topology, *asked, options, host, join.local_world_size);
    if (!bound) return bound.error();
    places = *std::move(bound);
    remark_unplaced_memory(places, options, notes);
    if (is_auto) {
      const std::vector<int> threads = fair_threads(*topology, places, host.usable_cpus);
      for (std::size_t i = 0; i < places.size(); ++i) places[i].omp_threads = threads[i];
    }
  }
  if (options.omp_threads && !is_auto) {
    for (WorkerPlacement& place : places) place.omp_threads = std::get<int>(*options.omp_threads);
  }
  if (!gpus.empty()) {
    if (auto given = give_devices(places, gpus, host); !given) return given.error();
    worker.device_variable = host.gpu_variable;
  }
  worker.placements = std::move(places);
  return {};
}

}  // namespace drun

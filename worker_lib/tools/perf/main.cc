// drun-perf: times the collectives of worker_lib in the job it is started in, as nccl-tests does.
// Before the first block of timed operations and after each of them it checks a result.
#include <cinttypes>
#include <cstdio>
#include <string>
#include <variant>

#include "drun/process_group.h"
#include "drun/record.h"
#include "worker_lib/nccl/nccl_backend.h"
#include "worker_lib/tools/perf/measure.h"
#include "worker_lib/tools/perf/options.h"

namespace drun::perf {
namespace {

// What all the results have in common.
struct Scene {
  std::string backend = "";
  std::string type = "";
  std::string device = "";  // of rank 0
  int ranks = 1;
};

Scene scene_of(const Options& options, ProcessGroup& group, const Place& place) {
  return {.backend = options.is_on_gpu ? "nccl" : group.backend(),
          .type = std::string(to_string(options.type)),
          .device = to_string(place),
          .ranks = group.size()};
}

void print_head(const Options& options, const Scene& scene) {
  if (options.is_json) return;
  std::printf(
      "# %s of %s over %s on %s, %d ranks; results checked before and after each timed block\n",
      options.operation.c_str(), scene.type.c_str(), scene.backend.c_str(), scene.device.c_str(),
      scene.ranks);
  std::printf("# %12s %12s %12s %10s %10s\n", "bytes", "count", "time_us", "algbw_gbs",
              "busbw_gbs");
}

void print(const Options& options, const Scene& scene, const Measured& measured) {
  if (options.is_json) {
    std::printf(
        "{\"operation\": \"%s\", \"backend\": \"%s\", \"device\": \"%s\", \"dtype\": \"%s\", "
        "\"ranks\": %d, \"bytes\": %zu, \"count\": %zu, \"time_us\": %.3f, \"algbw_gbs\": %.4f, "
        "\"busbw_gbs\": %.4f}\n",
        options.operation.c_str(), scene.backend.c_str(), scene.device.c_str(), scene.type.c_str(),
        scene.ranks, measured.bytes, measured.count, measured.time_us, measured.algbw_gbs,
        measured.busbw_gbs);
  } else {
    std::printf("  %12zu %12zu %12.2f %10.3f %10.3f\n", measured.bytes, measured.count,
                measured.time_us, measured.algbw_gbs, measured.busbw_gbs);
  }
  std::fflush(stdout);
}

void run(const Options& options) {
  if (options.is_on_gpu) worker::check_nccl_is_here();  // before anybody is waited for
  InitOptions init;
  init.backend = options.backend;
  ProcessGroup group = init_process_group(init);
  const Place place = place_for(options, group);
  const Scene scene = scene_of(options, group, place);
  const bool speaks = group.rank() == 0;
  if (speaks) print_head(options, scene);
  const bool has_sizes = options.operation != "barrier";
  for (std::size_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= 2) {
    const Measured measured = measure(group, options, place, bytes);
    if (speaks) print(options, scene, measured);
    if (!has_sizes) break;
  }
  group.barrier();
  destroy_process_group();
}

}  // namespace
}  // namespace drun::perf

int main(int argc, char** argv) {
  const std::variant<drun::perf::Options, int> parsed = drun::perf::parse_options(argc, argv);
  if (const int* code = std::get_if<int>(&parsed)) return *code;
  return drun::record([&parsed] { drun::perf::run(std::get<drun::perf::Options>(parsed)); });
}

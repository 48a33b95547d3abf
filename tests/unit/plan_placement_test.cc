#include "launcher/plan/plan.h"

#include "tests/support/catch.h"
#include "tests/support/plans.h"

namespace drun {
namespace {

using test::has;
using test::Words;

// Two packages of four cores, each with its own memory node and two GPUs.
Topology server() {
  Topology topology{.cpus = {}, .memory_nodes = {0, 1}, .gpus = {}};
  for (int cpu = 0; cpu < 8; ++cpu) {
    topology.cpus.push_back(
        {.cpu = cpu, .core = cpu, .cache = cpu / 4, .package = cpu / 4, .memory_node = cpu / 4});
  }
  return topology;
}

HostFacts server_host(std::vector<EnvironmentEntry> environment = {}, int gpus = 4) {
  HostFacts host;
  host.hostname = "gpu0";
  host.usable_cpus = 8;
  host.environment = std::move(environment);
  host.environment.emplace_back("PATH", "/bin");
  host.gpus = gpus;
  for (int i = 0; i < gpus; ++i)
    host.installed_gpus.push_back({.uuid = "GPU-" + std::to_string(i), .memory_node = i / 2});
  host.topology = [] { return Result<Topology>(server()); };
  host.probe = [](const std::string& path) {
    return path == "/bin/train" || path == "/bin/gdb" ? FileKind::Executable : FileKind::Missing;
  };
  return host;
}

WorkerSpec worker_of(Options options, const HostFacts& host = server_host()) {
  options.program = "train";
  return test::plan_of(options, host).agent.worker;
}

std::string placement_error(const Options& options, const HostFacts& host = server_host()) {
  return test::plan_error(options, host);
}

std::vector<std::string> devices_of(const WorkerSpec& worker, std::size_t local_rank) {
  return worker.placements.at(local_rank).devices;
}

}  // namespace

TEST_CASE("without placement options no worker is placed and the topology is not read") {
  HostFacts host = server_host();
  host.topology = [] { return Result<Topology>(system_error("look", 5)); };
  CHECK(worker_of({.nproc_per_node = 2}, host).placements.empty());
  CHECK(worker_of({.nproc_per_node = 2, .bind_to = BindTo::None}, host).placements.empty());
  const Result<Plan> plan = make_plan({.program = "train", .bind_to = BindTo::Core}, host);
  REQUIRE_FALSE(plan);
  CHECK(plan.error().code == ErrorCode::System);
}

TEST_CASE("GPUs are assigned in order, by number or as the variable names them") {
  const WorkerSpec two = worker_of({.nproc_per_node = 2, .gpus_per_worker = 2});
  CHECK(devices_of(two, 0) == Words{"0", "1"});
  CHECK(devices_of(two, 1) == Words{"2", "3"});
  const WorkerSpec named = worker_of({.nproc_per_node = 2, .gpus_per_worker = 1},
                                     server_host({{"CUDA_VISIBLE_DEVICES", "GPU-3, GPU-1"}}));
  CHECK(devices_of(named, 0) == Words{"GPU-3"});
  CHECK(devices_of(named, 1) == Words{"GPU-1"});
  CHECK(devices_of(
            worker_of({.gpus_per_worker = 1}, server_host({{"CUDA_VISIBLE_DEVICES", "7,8"}}, 0)),
            0) == Words{"7"});  // GPUs of a kind that drun does not detect
}

TEST_CASE("HIP_VISIBLE_DEVICES is used if it hides the machine's GPUs") {
  HostFacts host = server_host({{"HIP_VISIBLE_DEVICES", "2,3"}});
  host.gpu_variable = "HIP_VISIBLE_DEVICES";
  const WorkerSpec worker = worker_of({.gpus_per_worker = 1}, host);
  CHECK(worker.device_variable == "HIP_VISIBLE_DEVICES");
  CHECK(devices_of(worker, 0) == Words{"2"});
}

TEST_CASE("too few GPUs for the workers are rejected") {
  CHECK_THAT(placement_error({.nproc_per_node = 3, .gpus_per_worker = 2}),
             ContainsSubstring("--gpus-per-worker=2: 3 workers need 6 GPUs, and 4 are visible"));
  CHECK_THAT(placement_error({.gpus_per_worker = 1}, server_host({}, 0)),
             ContainsSubstring("1 worker needs 1 GPU, and 0 are visible on gpu0"));
  CHECK_THAT(
      placement_error({.gpus_per_worker = 3}, server_host({{"CUDA_VISIBLE_DEVICES", "0,1,9,2"}})),
      ContainsSubstring("2 are visible"));
}

TEST_CASE("the default number of workers is the number of GPUs divided by --gpus-per-worker") {
  const auto workers = [](Device device) {
    return worker_of({.nproc_per_node = device, .gpus_per_worker = 2}).placements.size();
  };
  CHECK(workers(Device::Gpu) == 2);
  CHECK(workers(Device::Auto) == 2);
  CHECK_THAT(placement_error({.nproc_per_node = Device::Gpu, .gpus_per_worker = 3}),
             ContainsSubstring("--gpus-per-worker=3: the 4 visible GPUs"));
}

TEST_CASE("workers are bound near the GPUs that they see") {
  const HostFacts host = server_host({{"CUDA_VISIBLE_DEVICES", "GPU-3,0"}});
  const WorkerSpec worker = worker_of({.nproc_per_node = 1, .bind_to = BindTo::GpuNode}, host);
  CHECK(ranges_text(worker.placements[0].cpus) ==
        "4-7");  // the index 0 cannot be mixed with a UUID
  const WorkerSpec by_mode = worker_of({.nproc_per_node = 4, .numa_binding = BindTo::GpuExclusive},
                                       server_host({{"CUDA_VISIBLE_DEVICES", "2,0,3,1"}}));
  CHECK(ranges_text(by_mode.placements[0].cpus) == "4-5");
  CHECK(ranges_text(by_mode.placements[1].cpus) == "0-1");
  CHECK(ranges_text(by_mode.placements[2].cpus) == "6-7");
}

TEST_CASE("a placement error names the option as it was written") {
  CHECK_THAT(placement_error({.nproc_per_node = 9, .bind_to = BindTo::Core}),
             ContainsSubstring("--bind-to=core: 9 workers"));
  CHECK_THAT(placement_error({.bind_to = BindTo::GpuNode}, server_host({}, 0)),
             ContainsSubstring("--bind-to=gpu: no GPU is visible"));
  CHECK_THAT(placement_error({.numa_binding = BindTo::GpuNode}, server_host({}, 0)),
             ContainsSubstring("--numa-binding=node: no GPU is visible"));
}

TEST_CASE("contradictory placement options are rejected") {
  CHECK_THAT(placement_error({.bind_to = BindTo::Core, .numa_binding = BindTo::GpuNode}),
             ContainsSubstring("--numa-binding=node: --bind-to=core"));
  CHECK_THAT(placement_error({.bind_memory = MemoryPolicy::Strict}),
             ContainsSubstring("--bind-memory=strict: no worker is bound"));
  CHECK_THAT(placement_error({.wrap_ranks = std::vector<int>{0}}),
             ContainsSubstring("--wrap-ranks"));
  CHECK_THAT(
      placement_error({.nproc_per_node = 2, .wrap = Words{"gdb"}, .wrap_ranks = std::vector{0, 2}}),
      ContainsSubstring("there is no rank 2; ranks are 0 to 1"));
}

TEST_CASE("the option --omp-threads overrides an inherited OMP_NUM_THREADS") {
  const HostFacts host = server_host({{"OMP_NUM_THREADS", "64"}});
  const WorkerSpec given = worker_of({.nproc_per_node = 2, .omp_threads = OmpThreads(3)}, host);
  CHECK(given.placements[1].omp_threads == 3);
  const WorkerSpec counted =
      worker_of({.nproc_per_node = 2, .omp_threads = OmpThreads(AutoThreads{})}, host);
  CHECK(counted.placements[0].omp_threads == 4);
  CHECK(counted.placements[0].cpus.empty());
  CHECK(has(worker_of({.nproc_per_node = 2}).environment, {"OMP_NUM_THREADS", "1"}));
  CHECK_FALSE(has(worker_of({.nproc_per_node = 2, .omp_threads = OmpThreads(3)}).environment,
                  {"OMP_NUM_THREADS", "1"}));
}

TEST_CASE("memory that cannot be bound causes a warning") {
  HostFacts host = server_host();
  host.topology = [] {
    Topology topology = server();
    topology.memory_nodes = {0};
    return Result<Topology>(topology);
  };
  Options options{.nproc_per_node = 2, .program = "train", .bind_to = BindTo::Numa};
  const Result<Plan> plan = make_plan(options, host);
  REQUIRE(plan);
  REQUIRE(plan->warnings.size() == 1);
  CHECK_THAT(plan->warnings[0], ContainsSubstring("local rank 1") && ContainsSubstring("4-7"));
  options.bind_memory = MemoryPolicy::None;
  CHECK(make_plan(options, host)->warnings.empty());
}

TEST_CASE("the wrapper command is looked up before anything starts") {
  const WorkerSpec worker = worker_of(
      {.nproc_per_node = 4, .wrap = Words{"gdb", "--args"}, .wrap_ranks = std::vector{3}});
  CHECK(worker.wrap == WrapSpec{.argv = {"gdb", "--args"}, .ranks = {3}});
  const Result<Plan> plan =
      make_plan({.program = "train", .wrap = Words{"valgrind"}}, server_host());
  REQUIRE(plan);
  REQUIRE(plan->cannot_start);
  CHECK_THAT(plan->cannot_start->message, ContainsSubstring("--wrap: valgrind is not on PATH"));
}

}  // namespace drun

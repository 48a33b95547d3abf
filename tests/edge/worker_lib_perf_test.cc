// Tests drun-perf, the bare NCCL benchmark and an example on GPU memory, with stand-ins for NCCL
// and CUDA's driver (tests/standin) and, on a machine with an NVIDIA GPU, with the real libraries.
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/gpu_memory.h"
#include "tests/support/places.h"
#include "tests/support/process.h"
#include "tests/support/ranks.h"

namespace drun {
namespace {

using test::RankEnd;
using Words = std::vector<std::string>;
using Environment = std::map<std::string, std::string>;

Environment over_standins() {
  return {{"DRUN_CUDA_LIBRARY", testing::built("standin/libcuda_standin.so")},
          {"DRUN_NCCL_LIBRARY", testing::built("standin/libnccl_standin.so")}};
}

// Checks that all ranks succeed, and returns rank 0's output.
std::string run_well(int size, const Environment& environment, const std::string& program,
                     const Words& arguments) {
  const test::StoreProcess store;
  const std::vector<RankEnd> ends = test::run_programs(
      {.size = size, .port = store.port(), .environment = environment}, program, arguments);
  for (const RankEnd& end : ends) {
    INFO(end.said);
    CHECK(end.exit_code == 0);
  }
  return ends[0].said;
}

// NCCL rejects ranks of one host that share a GPU, so each rank claims another host.
std::string run_program_on_one_gpu(int size, const std::string& program, const Words& arguments) {
  Words words{"-c", "NCCL_HOSTID=rank$RANK exec \"$0\" \"$@\"", program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run_well(size, test::environment_on_one_gpu(), "/bin/sh", words);
}

std::vector<nlohmann::json> lines_of(const std::string& said) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(said);
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

testing::Ended perf_says(const Words& arguments) {
  std::vector<std::string> argv{testing::built("drun-perf"), "all_reduce"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return testing::run(
      {.argv = argv,
       .environment = {
           {"RANK", "0"}, {"WORLD_SIZE", "1"}, {"DRUN_CUDA_LIBRARY", "/nowhere/libcuda.so.1"}}});
}

}  // namespace

TEST_CASE("drun-perf times every operation on a GPU and finds its results right, over stand-ins") {
  const std::string operation =
      GENERATE("barrier", "broadcast", "all_reduce", "reduce", "gather", "all_gather", "scatter",
               "reduce_scatter", "all_to_all", "send_recv");
  INFO(operation);
  const std::vector<nlohmann::json> lines = lines_of(run_well(
      2, over_standins(), testing::built("drun-perf"),
      {operation, "--device", "cuda", "--bytes", "64:128", "--seconds", "0.001", "--json"}));
  REQUIRE(lines.size() == (operation == "barrier" ? 1 : 2));
  for (const nlohmann::json& line : lines) {
    CHECK(line["backend"] == "nccl");
    CHECK(line["device"] == "cuda:0");
    CHECK(line["time_us"].get<double>() > 0);
  }
  CHECK(lines.back()["bytes"] == (operation == "barrier" ? 0 : 128));
}

TEST_CASE("drun-perf uses the GPU of its local rank, and allocates memory there, over stand-ins") {
  Environment environment = over_standins();
  environment["STANDIN_GPUS"] = "2";
  environment["LOCAL_RANK"] = "1";
  const std::vector<nlohmann::json> lines = lines_of(
      run_well(1, environment, testing::built("drun-perf"),
               {"all_reduce", "--backend", "cpu:shm,cuda:nccl", "--device", "cuda", "--dtype",
                "bf16", "--op", "avg", "--bytes", "1K", "--seconds", "0.001", "--json"}));
  REQUIRE(lines.size() == 1);
  CHECK(lines[0]["device"] == "cuda:1");
  CHECK(lines[0]["count"] == 512);
}

TEST_CASE("drun-perf detects a wrong result on a GPU before it times anything, over stand-ins") {
  Environment environment = over_standins();
  environment["STANDIN_NCCL_FAULT"] = "nothing=1";
  const test::StoreProcess store;
  const std::vector<RankEnd> ends = test::run_programs(
      {.size = 2, .port = store.port(), .environment = environment}, testing::built("drun-perf"),
      {"all_reduce", "--device", "cuda", "--bytes", "64", "--seconds", "0.001", "--json"});
  for (const RankEnd& end : ends) {
    CHECK(end.exit_code == 1);
    CHECK(end.said == "");
  }
}

TEST_CASE("without a GPU drun-perf fails with the reason and measures nothing") {
  const Words arguments =
      GENERATE(Words{"--device", "cuda"}, Words{"--backend", "nccl"},
               Words{"--device", "cuda", "--backend", "cpu:shm+gloo,cuda:nccl"});
  const testing::Ended ended = perf_says(arguments);
  CHECK(ended.code == 1);
  CHECK(ended.out == "");
  CHECK_THAT(ended.err, ContainsSubstring("cannot load /nowhere/libcuda.so.1 (the CUDA driver)"));
}

TEST_CASE("drun-perf rejects a device that does not match the rest of its command line") {
  const auto [arguments, text] = GENERATE(
      std::pair<Words, std::string>{{"--device", "cuda", "--backend", "gloo"}, "gloo does not"},
      std::pair<Words, std::string>{{"--device", "cpu", "--backend", "nccl"}, "GPUs only"},
      std::pair<Words, std::string>{{"--device", "cuda", "--shared"}, "memory of the host"},
      std::pair<Words, std::string>{{"--device", "tpu"}, "tpu not in"},
      std::pair<Words, std::string>{{"--backend", "cpu:"}, "neither a name nor cpu:name"});
  const testing::Ended ended = perf_says(arguments);
  INFO(ended.err);
  CHECK(ended.code == 2);
  CHECK_THAT(ended.err, ContainsSubstring(text));
}

TEST_CASE("the bare NCCL benchmark works with either kind of communicator, over stand-ins") {
  const std::string how = GENERATE("blocking", "nonblocking");
  std::istringstream said(run_well(2, over_standins(), testing::built("bench/nccl_all_reduce"),
                                   {how, "4", "16", "0.001"}));
  std::size_t bytes = 0;
  double time_us = 0;
  for (const std::size_t expected : {std::size_t{4}, std::size_t{16}}) {
    REQUIRE(said >> bytes >> time_us);
    CHECK(bytes == expected);
    CHECK(time_us > 0);
  }
}

TEST_CASE("on a GPU, drun-perf and the bare NCCL benchmark work with one rank and with two") {
  const std::string reason = test::no_gpu_here();
  if (!reason.empty()) {
    WARN("skipped: " << reason);
    return;
  }
  for (const int size : {1, 2}) {
    const std::vector<nlohmann::json> lines = lines_of(run_program_on_one_gpu(
        size, testing::built("drun-perf"),
        {"all_reduce", "--device", "cuda", "--bytes", "4:16", "--seconds", "0.01", "--json"}));
    CHECK(lines.size() == 3);
    run_program_on_one_gpu(size, testing::built("bench/nccl_all_reduce"),
                           {"blocking", "4", "16", "0.01"});
  }
}

TEST_CASE("on a GPU, the train_gpu example gets the same result with one rank and with two") {
  const std::string program = testing::built("examples/train_gpu");
  if (!std::filesystem::exists(program)) {
    WARN("skipped: this build has no CUDA compiler, or sanitizers");
    return;
  }
  const std::string reason = test::no_gpu_here();
  if (!reason.empty()) {
    const testing::Ended ended = testing::run({.argv = {program}});
    CHECK(ended.code == 1);
    CHECK_THAT(ended.err, ContainsSubstring("no GPU to train on: "));
    WARN("skipped: " << reason);
    return;
  }
  for (const int size : {1, 2}) {
    const std::string said = run_program_on_one_gpu(size, program, {});
    CHECK_THAT(said, ContainsSubstring(std::to_string(size) +
                                       " ranks on GPUs, 100 steps, 1200 samples: accuracy 99.9 %"));
    CHECK_THAT(said, ContainsSubstring("all ranks have identical weights"));
  }
}

}  // namespace drun

#include "agent/worker_command.h"

#include <algorithm>

#include "tests/support/catch.h"

namespace drun::agent {
namespace {

using Words = std::vector<std::string>;

World two_workers() {
  World world;
  world.run_id = "job";
  world.local_world_size = 2;
  world.world_size = 4;
  world.base_rank = 2;
  world.node_rank = 1;
  world.node_count = 2;
  world.master_addr = "gpu0";
  world.master_port = 29500;
  return world;
}

// The value; empty text also when it is not there. Each name is there at most once.
std::string value_of(const std::vector<EnvironmentEntry>& environment, std::string_view name) {
  std::string found;
  int count = 0;
  for (const auto& [each, value] : environment) {
    if (each != name) continue;
    found = value;
    ++count;
  }
  CHECK(count <= 1);
  return found;
}

}  // namespace

TEST_CASE("only the local rank is filled in, as Python's templates do") {
  const auto [text, wanted] = GENERATE(table<std::string, std::string>({
      {"", ""},
      {"plain", "plain"},
      {"${local_rank}", "7"},
      {"$local_rank", "7"},
      {"a${local_rank}b$local_rank.c", "a7b7.c"},
      {"$local_rank_x", "$local_rank_x"},
      {"${local_rank", "${local_rank"},
      {"${local_rank }", "${local_rank }"},
      {"${rank}", "${rank}"},
      {"$HOME/${x}", "$HOME/${x}"},
      {"$${local_rank}", "${local_rank}"},
      {"$$$local_rank", "$7"},
      {"$5 ${} $ $local_rank", "$5 ${} $ 7"},
  }));
  CAPTURE(text);
  CHECK(with_local_rank(text, 7) == wanted);
}

TEST_CASE("an argument that does not speak of the local rank stays as it is") {
  CHECK(with_local_rank("echo $$ $RANK", 7) == "echo $$ $RANK");
  CHECK(with_local_rank("$$", 7) == "$$");
  CHECK(with_local_rank("$$ $local_rank", 7) == "$ 7");
}

TEST_CASE("drun tells a worker who it is") {
  const auto own = own_environment({}, two_workers(), 1, "/logs/1/error.json");
  const auto [name, value] = GENERATE(table<std::string, std::string>({
      {"RANK", "3"},
      {"LOCAL_RANK", "1"},
      {"WORLD_SIZE", "4"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"GROUP_RANK", "1"},
      {"GROUP_WORLD_SIZE", "2"},
      {"MASTER_ADDR", "gpu0"},
      {"MASTER_PORT", "29500"},
      {"TORCHELASTIC_RUN_ID", "job"},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"},
      {"TORCHELASTIC_ERROR_FILE", "/logs/1/error.json"},
  }));
  CAPTURE(name);
  CHECK(value_of(own, name) == value);
}

TEST_CASE("without log files the error file's variable is there and empty") {
  const auto own = own_environment({}, two_workers(), 0, "");
  CHECK(std::count(own.begin(), own.end(), EnvironmentEntry("TORCHELASTIC_ERROR_FILE", "")) == 1);
}

TEST_CASE("the program's name is never a template, its arguments are unless told otherwise") {
  WorkerSpec spec;
  spec.argv = {"./$local_rank", "$local_rank"};
  CHECK(worker_argv(spec, 1) == Words{"./$local_rank", "1"});
  spec.substitutes_local_rank = false;
  CHECK(worker_argv(spec, 1) == Words{"./$local_rank", "$local_rank"});
}

TEST_CASE("--local-rank goes in front of the program's own arguments") {
  WorkerSpec spec;
  spec.argv = {"python3", "-u", "t.py", "--lr=1"};
  spec.passes_local_rank = true;
  spec.program_arguments_at = 3;
  CHECK(worker_argv(spec, 1) == Words{"python3", "-u", "t.py", "--local-rank=1", "--lr=1"});
  spec.argv = {"./train"};
  spec.program_arguments_at = 1;
  CHECK(worker_argv(spec, 1) == Words{"./train", "--local-rank=1"});
}

TEST_CASE("a virtual local rank is 0, with one device visible") {
  WorkerSpec spec;
  spec.virtual_local_rank = true;
  const auto bare = own_environment(spec, two_workers(), 1, "");
  CHECK(value_of(bare, "LOCAL_RANK") == "0");
  CHECK(value_of(bare, "RANK") == "3");
  CHECK(value_of(bare, "CUDA_VISIBLE_DEVICES") == "1");
  spec.environment = {{"CUDA_VISIBLE_DEVICES", "4, GPU-7"}};
  CHECK(value_of(own_environment(spec, two_workers(), 1, ""), "CUDA_VISIBLE_DEVICES") == "GPU-7");
  spec.virtual_local_rank = false;
  CHECK(value_of(own_environment(spec, two_workers(), 1, ""), "CUDA_VISIBLE_DEVICES").empty());
}

}  // namespace drun::agent

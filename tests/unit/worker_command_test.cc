#include "agent/workers/worker_command.h"

#include <algorithm>
#include <set>

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

bool has_once(const std::vector<EnvironmentEntry>& environment, const EnvironmentEntry& entry) {
  return std::count(environment.begin(), environment.end(), entry) == 1;
}

}  // namespace

TEST_CASE("only the local rank is substituted, by the rules of Python's templates") {
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
      {"kill $$", "kill $$"},
      {"$$ $local_rank", "$ 7"},
      {"$${local_rank}", "${local_rank}"},
      {"$$$local_rank", "$7"},
      {"$", "$"},
      {"$5 ${} $", "$5 ${} $"},
  }));
  CAPTURE(text);
  CHECK(with_local_rank(text, 7) == wanted);
}

TEST_CASE("each of drun's variables is set once") {
  WorkerSpec spec;
  const auto own = own_environment(spec, two_workers(), 1, "/logs/1/error.json");
  CHECK(has_once(own, {"RANK", "3"}));
  CHECK(has_once(own, {"LOCAL_RANK", "1"}));
  CHECK(has_once(own, {"MASTER_ADDR", "gpu0"}));
  CHECK(has_once(own, {"TORCHELASTIC_ERROR_FILE", "/logs/1/error.json"}));
  std::set<std::string> names;
  for (const auto& [name, value] : own) CHECK(names.insert(name).second);
}

TEST_CASE(
    "the local rank is substituted in arguments by default, and never in the program's name") {
  WorkerSpec spec;
  spec.argv = {"./$local_rank", "$local_rank"};
  CHECK(worker_argv(spec, 0) == Words{"./$local_rank", "0"});
  spec.substitutes_local_rank = false;
  CHECK(worker_argv(spec, 0) == Words{"./$local_rank", "$local_rank"});
}

TEST_CASE("the option --local-rank precedes the program's own arguments") {
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
  spec.argv = {"./train"};
  spec.virtual_local_rank = true;
  const auto bare = own_environment(spec, two_workers(), 1, "");
  CHECK(has_once(bare, {"LOCAL_RANK", "0"}));
  CHECK(has_once(bare, {"RANK", "3"}));
  CHECK(has_once(bare, {"CUDA_VISIBLE_DEVICES", "1"}));
  spec.environment = {{"CUDA_VISIBLE_DEVICES", "4, GPU-7"}};
  const auto chosen = own_environment(spec, two_workers(), 1, "");
  CHECK(has_once(chosen, {"CUDA_VISIBLE_DEVICES", "GPU-7"}));
  CHECK_FALSE(has_once(chosen, {"CUDA_VISIBLE_DEVICES", "4, GPU-7"}));
}

TEST_CASE("a virtual local rank prefers a device from HIP_VISIBLE_DEVICES, as in torchrun") {
  WorkerSpec spec;
  spec.argv = {"./train"};
  spec.virtual_local_rank = true;
  spec.environment = {{"CUDA_VISIBLE_DEVICES", "0,1"}, {"HIP_VISIBLE_DEVICES", "6, 7"}};
  const auto both = own_environment(spec, two_workers(), 1, "");
  CHECK(has_once(both, {"HIP_VISIBLE_DEVICES", "7"}));
  CHECK(has_once(both, {"CUDA_VISIBLE_DEVICES", "7"}));
  spec.environment = {{"HIP_VISIBLE_DEVICES", "2,3"}};
  const auto hip = own_environment(spec, two_workers(), 0, "");
  CHECK(has_once(hip, {"HIP_VISIBLE_DEVICES", "2"}));
  CHECK(has_once(hip, {"CUDA_VISIBLE_DEVICES", "2"}));
  spec.environment = {{"HIP_VISIBLE_DEVICES", ""}, {"CUDA_VISIBLE_DEVICES", "4,5"}};
  const auto empty = own_environment(spec, two_workers(), 1, "");
  CHECK(has_once(empty, {"CUDA_VISIBLE_DEVICES", "5"}));
  CHECK(std::none_of(empty.begin(), empty.end(),
                     [](const auto& entry) { return entry.first == "HIP_VISIBLE_DEVICES"; }));
}

TEST_CASE("without log files the error file's variable is set and empty") {
  WorkerSpec spec;
  spec.argv = {"./train"};
  CHECK(has_once(own_environment(spec, two_workers(), 0, ""), {"TORCHELASTIC_ERROR_FILE", ""}));
}

TEST_CASE("a placed worker gets variables for its devices and threads") {
  WorkerSpec spec;
  spec.environment = {{"CUDA_VISIBLE_DEVICES", "4,5,6,7"}, {"OMP_NUM_THREADS", "9"}};
  spec.placements.resize(2);
  spec.placements[1] = {.omp_threads = 3, .devices = {"6", "7"}};
  const auto own = own_environment(spec, two_workers(), 1, "");
  CHECK(has_once(own, {"CUDA_VISIBLE_DEVICES", "6,7"}));
  CHECK(has_once(own, {"OMP_NUM_THREADS", "3"}));
  CHECK(has_once(own, {"LOCAL_RANK", "1"}));
  spec.virtual_local_rank = true;
  spec.device_variable = "HIP_VISIBLE_DEVICES";
  const auto hidden = own_environment(spec, two_workers(), 1, "");
  CHECK(has_once(hidden, {"HIP_VISIBLE_DEVICES", "6,7"}));
  CHECK(has_once(hidden, {"LOCAL_RANK", "0"}));
  CHECK(std::none_of(hidden.begin(), hidden.end(),
                     [](const auto& entry) { return entry.first == "CUDA_VISIBLE_DEVICES"; }));
  spec.placements[1] = {};
  CHECK(has_once(own_environment(spec, two_workers(), 1, ""), {"CUDA_VISIBLE_DEVICES", "5"}));
}

TEST_CASE("selected ranks run under the wrapper command with their ranks substituted") {
  WorkerSpec spec;
  spec.argv = {"./train", "--seed=${local_rank}"};
  CHECK(wrapped_argv(spec, two_workers(), 1) == Words{"./train", "--seed=1"});
  spec.wrap.argv = {"nsys", "-o", "out.${rank}.${local_rank}", "--"};
  CHECK(wrapped_argv(spec, two_workers(), 1) ==
        Words{"nsys", "-o", "out.3.1", "--", "./train", "--seed=1"});
  spec.wrap.ranks = {2, 7};
  CHECK(wrapped_argv(spec, two_workers(), 1) == Words{"./train", "--seed=1"});
  CHECK(wrapped_argv(spec, two_workers(), 0).front() == "nsys");
}

TEST_CASE("all other dollar signs in a wrapper command are kept") {
  const auto [text, wanted] = GENERATE(table<std::string, std::string>({
      {"${rank}", "12"},
      {"a${local_rank}${rank}b", "a412b"},
      {"$rank $local_rank $$ $pc", "$rank $local_rank $$ $pc"},
      {"${ranks} ${rank ${}", "${ranks} ${rank ${}"},
      {"$${rank}", "$12"},
      {"", ""},
      {"$", "$"},
      {"${", "${"},
  }));
  CAPTURE(text);
  CHECK(with_ranks(text, {.rank = 12, .local_rank = 4}) == wanted);
}

}  // namespace drun::agent

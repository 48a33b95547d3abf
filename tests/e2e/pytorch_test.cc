// Runs unmodified PyTorch programs under drun, with the distribution's PyTorch and with the current
// one that DRUN_TORCH_PYTHON names.

#include <cstdlib>

#include "tests/support/catch.h"
#include "tests/support/job.h"
#include "tests/support/places.h"

namespace drun::testing {
namespace {

bool has_torch(const std::string& python) {
  return run(Launch{.argv = {python, "-c", "import torch.distributed"}}, 60s).code == 0;
}

// The interpreters that can import torch. Each of the two that is missing counts as a skip.
std::vector<std::string> torch_pythons() {
  std::vector<std::string> pythons;
  const std::string distribution = "/usr/bin/python3";
  if (has_torch(distribution)) {
    pythons.push_back(distribution);
  } else {
    WARN("skipped: " + distribution + " cannot import torch (python3-torch)");
  }
  const char* const current = std::getenv("DRUN_TORCH_PYTHON");
  if (current != nullptr && has_torch(current)) {
    pythons.emplace_back(current);
  } else {
    WARN("skipped: DRUN_TORCH_PYTHON names no Python with a current torch");
  }
  return pythons;
}

const std::string kTorchAllReduce = testing::source_file("tests/workers/torch_all_reduce.py");

Launch torch_job(const std::string& python, const Words& options, const Words& arguments = {}) {
  Launch launch = job(options, Words{kTorchAllReduce} + arguments);
  launch.environment["PYTHON_EXEC"] = python;
  return launch;
}

}  // namespace

TEST_CASE("a PyTorch program runs unmodified on one node", "[slow]") {
  for (const std::string& python : torch_pythons()) {
    const Ended ended = run(torch_job(python, {"--standalone", "--nproc_per_node=2"}), 250s);
    INFO(python << "\n" << ended.err);
    CHECK(ended.code == 0);
    CHECK_THAT(ended.out, ContainsSubstring("rank 0 of 2 restarts 0 sum 3\n") &&
                              ContainsSubstring("rank 1 of 2 restarts 0 sum 3\n"));
  }
}

TEST_CASE("a PyTorch program runs on three nodes, by env:// and by tcp://", "[slow]") {
  for (const std::string& python : torch_pythons()) {
    for (const bool uses_tcp : {false, true}) {
      const std::string port = std::to_string(free_port());
      const Words arguments = uses_tcp ? Words{"tcp://127.0.0.1:" + port} : Words{};
      std::vector<std::unique_ptr<Running>> nodes;
      for (const char* node : {"2", "0", "1"}) {
        nodes.push_back(std::make_unique<Running>(
            torch_job(python,
                      {"--nnodes=3", std::string("--node_rank=") + node, "--master_addr=127.0.0.1",
                       "--master_port=" + port},
                      arguments)));
      }
      for (const auto& node : nodes) {
        const Ended ended = node->wait(250s);
        INFO(python << "\n" << ended.err);
        CHECK(ended.code == 0);
        CHECK_THAT(ended.out, ContainsSubstring(" of 3 restarts 0 sum 6\n"));
      }
    }
  }
}

TEST_CASE("a PyTorch program initializes again after a restart, in a store without stale keys",
          "[slow]") {
  for (const std::string& python : torch_pythons()) {
    Launch launch = torch_job(python, {"--standalone", "--nproc_per_node=2", "--max-restarts=1"});
    launch.environment["FAIL_RANK"] = "1";
    const Ended ended = run(launch, 250s);
    INFO(python << "\n" << ended.err);
    CHECK(ended.code == 0);
    CHECK_THAT(ended.out, ContainsSubstring("rank 0 of 2 restarts 1 sum 3\n") &&
                              ContainsSubstring("rank 1 of 2 restarts 1 sum 3\n"));
  }
}

}  // namespace drun::testing

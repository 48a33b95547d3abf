#include "agent/hang/node_look.h"

#include <nlohmann/json.hpp>

#include "agent/stacks/evidence.h"
#include "tests/support/catch.h"

namespace drun::agent {
namespace {

const ras::RankPosition kLags{
    .is_known = true,
    .stand = NcclPosition::Behind,
    .words = "is at all_reduce 811 in a communicator of 8, the others at 812"};

FoundStacks two_trains() {
  const ProcessStacks process{.name = "train", .source = "/proc"};
  return {.workers = {{process}, {process}}};
}

}  // namespace

TEST_CASE("a rank that lags in NCCL has its own group in the evidence, with a note") {
  const Evidence evidence =
      evidence_of(two_trains(), 6, {WorkerFacts(), {.nccl = kLags}}, {"NCCL: a sentence"});
  REQUIRE(evidence.groups.size() == 2);
  CHECK(evidence.groups[0].nccl == NcclPosition::None);
  CHECK(evidence.groups[1].nccl == NcclPosition::Behind);
  const std::vector<std::string> lines = evidence_lines(evidence, 100);
  CHECK(lines.at(2) ==
        "rank 7: at all_reduce 811 in a communicator of 8, the others at 812 (NCCL) (/proc)");
  CHECK(lines.back() == "note: NCCL: a sentence");
}

TEST_CASE("a worker's own report takes precedence over NCCL's") {
  const Evidence evidence = evidence_of(
      two_trains(), 0, {WorkerFacts(), {.pulse = {.doing = "in barrier #2"}, .nccl = kLags}});
  CHECK(evidence.groups.at(1).doing == "in barrier #2");
  CHECK(evidence.groups[1].nccl == NcclPosition::Behind);
  // For a rank that waits, NCCL's text would describe another communicator, where the rank lags.
  ras::RankPosition waits = kLags;
  waits.stand = NcclPosition::Ahead;
  CHECK(evidence_of(two_trains(), 0, {{.nccl = waits}, {}}).groups.at(0).doing ==
        "ahead of other ranks (NCCL)");
}

TEST_CASE("drun stacks shows the state of ranks in NCCL") {
  const NcclPosition stand =
      GENERATE(NcclPosition::None, NcclPosition::Ahead, NcclPosition::Behind);
  const Evidence evidence{.groups = {{.ranks = {{0, 3}}, .nccl = stand, .source = "gdb"}}};
  const auto json = nlohmann::json::parse(evidence_json(evidence, "night"));
  const nlohmann::json words{nullptr, "ahead", "behind"};
  CHECK(json["groups"][0]["nccl"] == words[static_cast<std::size_t>(stand)]);
}

}  // namespace drun::agent

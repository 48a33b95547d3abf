#include "agent/nccl_ras/ras_position.h"

#include "tests/support/catch.h"

namespace drun::agent::ras {
namespace {

const Own kDrunOption{.addresses = {"127.0.0.1", "10.0.0.1"}, .pids = {{100, 1100}, {101}}};

Rank rank_of(int rank, Process process, std::uint64_t count, std::size_t kind = 0) {
  Rank one{.rank = rank, .process = std::move(process)};
  one.counts[kind] = count;
  return one;
}

// Ranks 0 and 1 are local, with pids 100 and 101. Ranks 2 and 3 have the same pids on 10.0.0.2.
Communicator four(const std::vector<std::uint64_t>& counts, const std::string& hash = "0x1") {
  Communicator communicator{.hash = hash, .size = 4};
  for (int i = 0; i < 4; ++i)
    communicator.ranks.push_back(rank_of(i, {100 + i % 2, i < 2 ? "10.0.0.1" : "10.0.0.2"},
                                         counts[static_cast<std::size_t>(i)]));
  return communicator;
}

Report report_of(std::vector<Communicator> communicators) {
  return {.kinds = {"AllReduce", "Broadcast"}, .communicators = std::move(communicators)};
}

}  // namespace

TEST_CASE("a rank that lags behind its communicator is named by its global rank") {
  const Findings found = find(report_of({four({812, 811, 812, 812})}), kDrunOption, 6);
  REQUIRE(found.positions.size() == 2);
  CHECK(found.positions[0].is_known);
  CHECK(found.positions[0].stand == NcclPosition::Ahead);
  CHECK(found.positions[1].stand == NcclPosition::Behind);
  CHECK(found.notes == std::vector<std::string>{
                           "NCCL: rank 7 is at all_reduce 811 in a communicator of 4, the others "
                           "at 812"});
}

TEST_CASE("the note describes how far ranks are behind") {
  const auto note_of = [](const std::vector<std::uint64_t>& counts) {
    const Findings found = find(report_of({four(counts)}), kDrunOption, 0);
    return found.notes.empty() ? "" : found.notes[0];
  };
  CHECK(note_of({5, 5, 5, 5}) == "NCCL: all ranks of a communicator of 4 have begun 5 operations");
  CHECK(note_of({4, 4, 5, 5}) ==
        "NCCL: ranks 0, 1 are at all_reduce 4 in a communicator of 4, the others at 5");
  CHECK(note_of({4, 6, 5, 6}) ==
        "NCCL: rank 0 is at all_reduce 4 in a communicator of 4, others at up to 6");
  CHECK(note_of({0, 6, 6, 6}) ==
        "NCCL: rank 0 has begun no all_reduce in a communicator of 4, the others are at 6");
  CHECK(note_of({0, 0, 6, 6}) ==
        "NCCL: ranks 0, 1 have begun no all_reduce in a communicator of 4, the others are at 6");
  CHECK(note_of({6, 6, 5, 6}).empty());  // rank 2 is reported by its own node
}

TEST_CASE("processes are identified by host and pid, also if they are children of a worker") {
  Communicator one{.hash = "0x1", .size = 2};
  one.ranks = {rank_of(0, {1100, "127.0.0.1"}, 3), rank_of(1, {101, "10.0.0.2"}, 4)};
  const Findings found = find(report_of({one}), kDrunOption, 0);
  CHECK(found.positions[0].stand == NcclPosition::Behind);
  CHECK_FALSE(found.positions[1].is_known);
  CHECK(found.positions[1] == RankPosition{});
}

TEST_CASE("if text names only the minority, only ranks that lag are known") {
  Communicator one{.hash = "0x1", .size = 32};
  one.ranks = {rank_of(9, {101, "10.0.0.1"}, 6649)};
  one.crowds = {{.kind = 0, .count = 6650, .ranks = 31}};
  const Findings found = find({.kinds = {"collective"}, .communicators = {one}}, kDrunOption, 8);
  CHECK_FALSE(found.positions[0].is_known);
  CHECK(found.notes == std::vector<std::string>{"NCCL: rank 9 is at operation 6649 in a "
                                                "communicator of 32, the others at 6650"});
}

TEST_CASE("a rank that waits in one communicator is not blamed for the lag in another") {
  // Rank 0 waits for rank 1 in one communicator, and all others wait for rank 0 in the other: a
  // deadlock.
  const Report report = report_of({four({9, 8, 9, 9}, "0x1"), four({3, 4, 4, 4}, "0x2")});
  const Findings found = find(report, kDrunOption, 0);
  CHECK(found.positions[0].stand == NcclPosition::Behind);
  CHECK(found.positions[1].stand == NcclPosition::Behind);
  // Rank 1 is not in the second communicator.
  Report clear = report;
  clear.communicators[1].ranks[1].counts[0].reset();
  const Findings clearer = find(clear, kDrunOption, 0);
  CHECK(clearer.positions[0].stand == NcclPosition::Ahead);
  CHECK(clearer.positions[1].stand == NcclPosition::Behind);
}

TEST_CASE(
    "a rank that does not answer is behind, and foreign processes are named by host and pid") {
  Report report = report_of({four({5, 5, 5, 5})});
  report.lost = {{{101, "10.0.0.1"}, false}, {{4711, "10.0.0.3"}, false}, {{4712, ""}, true}};
  const Findings found = find(report, kDrunOption, 2);
  CHECK(found.positions[1].stand == NcclPosition::Behind);
  CHECK(found.notes == std::vector<std::string>{"NCCL: rank 3 does not answer",
                                                "NCCL: process 4711 on 10.0.0.3 does not answer",
                                                "NCCL: process 4712 on a node is taken for dead"});
  for (int pid = 1; pid < 100; ++pid) report.lost.push_back({{pid, "10.0.0.9"}, true});
  CHECK(find(report, kDrunOption, 2).notes.size() == 5);
}

TEST_CASE("progress is the rank's own, or that of the last rank in the communicator") {
  const auto progress = [](const std::vector<std::uint64_t>& counts) {
    return find(report_of({four(counts)}), kDrunOption, 0).positions[0].progress;
  };
  CHECK(progress({5, 4, 5, 5}) == progress({5, 4, 6, 5}));
  CHECK(progress({5, 4, 5, 5}) != progress({6, 4, 5, 5}));
  CHECK(progress({5, 3, 5, 5}) != progress({5, 4, 5, 5}));
}

}  // namespace drun::agent::ras

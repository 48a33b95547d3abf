#include "agent/nccl_ras/ras_report.h"

#include "tests/support/catch.h"
#include "tests/support/ras_answers.h"

namespace drun::agent::ras {
namespace {

using test::kOldRasGreeting;
using test::kRasGreeting;
using test::ras_json;
using test::RasRank;

std::optional<Report> read(std::string_view text) {
  Answer answer;
  answer.take(text);
  return answer.finish();
}

// NCCL 2.27 output for a communicator of 32 ranks. One process is dead, and one does not answer.
const std::string kText =
    std::string(kOldRasGreeting) + R"(NCCL version 2.27.3 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  INCOMPLETE,MISMATCH

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 77 on node fe80::2 managing GPUs 0,1 (NVML 2,3)

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 21 -- GPU 5 managed by process 3487984 on node 172.16.64.213

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different status
  29 ranks have status RUNNING
  Rank 4 has status FINALIZE -- GPU 4 managed by process 504 on node 172.16.64.210

  Communicator ranks have different Broadcast operation counts
  29 ranks have launched up to operation 7
  Rank 9 has not launched any operations -- GPU 1 (NVML 3) managed by process 509 on node 172.16.64.211

  Communicator ranks have different AllReduce operation counts
  28 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 500 on node 172.16.64.210
  Rank 9 -- GPU 1 managed by process 509 on node 172.16.64.211

)";

}  // namespace

TEST_CASE("a JSON answer of NCCL's RAS service is parsed") {
  const auto report = read(std::string(kRasGreeting) + ras_json({{.pid = 7, .all_reduces = 812},
                                                                 {.pid = 8, .all_reduces = 811}}));
  REQUIRE(report);
  CHECK(report->kinds == std::vector<std::string>{"Broadcast", "AllReduce"});
  REQUIRE(report->communicators.size() == 1);
  const Communicator& one = report->communicators[0];
  CHECK(one.hash == "0xae94423cfbb2ef4a");
  CHECK(one.size == 2);
  REQUIRE(one.ranks.size() == 2);
  CHECK(one.ranks[1].rank == 1);
  CHECK(one.ranks[1].process == Process{8, "10.0.0.1"});
  CHECK(one.ranks[0].counts[0] == 3);
  CHECK(one.ranks[0].counts[1] == 812);
  CHECK(one.ranks[1].counts[1] == 811);
  CHECK_FALSE(one.ranks[0].counts[2]);
  CHECK(report->lost.empty());
}

TEST_CASE("ranks that do not answer are parsed even if NCCL omitted a comma") {
  const bool has_comma = GENERATE(true, false);
  const auto report =
      read(std::string(kRasGreeting) +
           ras_json({{.pid = 7, .all_reduces = 812},
                     {.pid = 8, .is_missing = true},
                     {.host = "fe80::2", .pid = 9, .is_missing = true, .is_dead = true}},
                    has_comma));
  REQUIRE(report);
  CHECK(report->communicators.at(0).ranks.size() == 1);
  CHECK(report->lost == std::vector<Lost>{{{8, "10.0.0.1"}, false}, {{9, "fe80::2"}, true}});
}

TEST_CASE("a text answer of NCCL's RAS service is parsed") {
  const auto report = read(kText);
  REQUIRE(report);
  CHECK(report->kinds == std::vector<std::string>{"Broadcast", "AllReduce"});
  CHECK(report->lost ==
        std::vector<Lost>{{{3487984, "172.16.64.213"}, false}, {{77, "fe80::2"}, true}});
  REQUIRE(report->communicators.size() == 1);
  const Communicator& one = report->communicators[0];
  CHECK(one.hash == "0xcf264af53edbe986");
  CHECK(one.size == 32);
  CHECK(one.crowds == std::vector<RankGroup>{{0, 7, 29}, {1, 6650, 28}, {1, 6649, 2}});
  REQUIRE(one.ranks.size() == 2);
  CHECK(one.ranks[0].rank == 9);
  CHECK(one.ranks[0].process == Process{509, "172.16.64.211"});
  CHECK(one.ranks[0].counts[0] == 0);
  CHECK(one.ranks[0].counts[1] == 6649);
  CHECK(one.ranks[1].process == Process{500, "172.16.64.210"});
  CHECK_FALSE(one.ranks[1].counts[0]);
}

TEST_CASE("before NCCL 2.26 all operations are of one kind") {
  const auto report = read(std::string(kOldRasGreeting) +
                           "Communicators... (0.00s)\n"
                           "Warnings\n========\n\n"
                           "#0-0 (27a079b828ff1a75) MISMATCH\n"
                           "  Communicator ranks have different collective operation counts\n"
                           "  3 ranks have launched up to operation 6650\n"
                           "  Rank 2 has launched up to operation 6649 -- GPU 2 managed by process "
                           "483074 on node 172.16.64.210\n\n");
  REQUIRE(report);
  CHECK(report->kinds == std::vector<std::string>{"collective"});
  CHECK(report->communicators.at(0).ranks.at(0).counts[0] == 6649);
  CHECK(report->communicators[0].size == 0);
}

TEST_CASE("a job without communicators is a valid empty report") {
  const auto report = read(std::string(kOldRasGreeting) +
                           "Communicators... (0.00s)\n=============\n\n"
                           "No communicator data collected!\n\nErrors\n======\n\n"
                           "Warnings\n========\n\n");
  REQUIRE(report);
  CHECK(*report == Report{});
  CHECK(read(std::string(kRasGreeting) + R"({"communicators": []})") == Report{});
}

TEST_CASE("an answer is parsed identically for any split into chunks") {
  const std::string text =
      GENERATE(as<std::string>(), kText,
               std::string(kRasGreeting) +
                   ras_json({{.pid = 7, .all_reduces = 812}, {.pid = 8, .is_missing = true}}));
  const auto whole = read(text);
  REQUIRE(whole);
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    Answer answer;
    answer.take(std::string_view(text).substr(0, cut));
    answer.take(std::string_view(text).substr(cut));
    REQUIRE(answer.finish() == whole);
  }
  Answer bytes;
  for (const char byte : text) bytes.take({&byte, 1});
  CHECK(bytes.finish() == whole);
}

TEST_CASE("truncated JSON is rejected, and so is text before its last section") {
  const std::string json = std::string(kRasGreeting) + ras_json({{.pid = 7}, {.pid = 8}});
  for (std::size_t size = 0; size + 2 < json.size(); ++size)
    REQUIRE_FALSE(read(std::string_view(json).substr(0, size)));
  const std::size_t last = kText.find("Warnings");
  for (std::size_t size = 0; size < last; ++size)
    REQUIRE_FALSE(read(std::string_view(kText).substr(0, size)));
}

TEST_CASE("an invalid answer of NCCL's RAS service is rejected") {
  const std::string greeting(kRasGreeting);
  const std::string text = GENERATE_COPY(
      as<std::string>(), "", "\n", "HTTP/1.1 400 Bad Request\r\n\r\n", std::string(5000, 'x'), "{}",
      greeting, greeting + "{", greeting + "{}", greeting + "{\"communicators\": {}}",
      greeting + "{\"communicators\": []} {", greeting + "{\"communicators\" \"a\" \"b\" []}",
      greeting + "{\"communicators\": []]", greeting + "{\"a\": }", greeting + "{3: []}",
      greeting + "{\"communicators\": [" + std::string(100, '['),
      greeting + "{\"" + std::string(300, 'x') + "\": [], \"communicators\": []}",
      greeting + std::string(5000, 'x') + "\nWarnings\n");
  CAPTURE(text.substr(0, 80));
  CHECK_FALSE(read(text));
}

TEST_CASE("JSON values of the wrong type are ignored") {
  const auto report = read(
      std::string(kRasGreeting) +
      R"({"communicators": [7, "x", [[]], {"hash": 5, "size": -3, "other": {"ranks": [{"rank": 1}]},
               "ranks": [null, {"rank": "two", "pid": -1, "host": "unknown", "more": [{"rank": 9}],
               "collective_counts": {"AllReduce": -5, "Reduce": 18446744073709551616,
               "Broadcast": 18446744073709551615, "AllGather": "a\"b", "x": {"y": 1}}}]}]})");
  REQUIRE(report);
  REQUIRE(report->communicators.size() == 1);
  const Communicator& one = report->communicators[0];
  CHECK(one.hash == "5");
  CHECK(one.size == 0);
  REQUIRE(one.ranks.size() == 1);
  CHECK(one.ranks[0].rank == 0);
  CHECK(one.ranks[0].process == Process{});
  CHECK(report->kinds.size() == 1);
  CHECK(one.ranks[0].counts[0] == 18446744073709551615U);
}

TEST_CASE("an answer with too many ranks is rejected, and the list of lost processes is bounded") {
  std::string json = std::string(kRasGreeting) + R"({"communicators": [{"ranks": [)";
  for (std::size_t i = 0; i <= kMostRanks; ++i) json += "{},";
  CHECK_FALSE(read(json + "]}]}"));
  std::string text(kOldRasGreeting);
  text += "DEAD\n";
  for (int pid = 1; pid < 5000; ++pid) text += "  Process " + std::to_string(pid) + " on node a\n";
  const auto report = read(text + "Warnings\n");
  REQUIRE(report);
  CHECK(report->lost.size() == kMostLost);
}

}  // namespace drun::agent::ras

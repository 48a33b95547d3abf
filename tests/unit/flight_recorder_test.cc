#include "agent/diagnosis/flight_recorder.h"

#include "agent/diagnosis/pickle.h"

#include <csignal>
#include <random>

#include "rendezvous/base/text.h"
#include "tests/support/catch.h"
#include "tests/support/flight_dumps.h"

namespace drun::agent {
namespace {

using LineList = std::vector<std::string>;

std::string bytes_of(std::string_view base64) {
  const auto bytes = bytes_of_base64(base64);
  REQUIRE(bytes.has_value());
  return *bytes;
}

FlightDump dump_of(int rank, std::string_view base64) {
  const Result<FlightDump> dump = read_flight_dump(rank, bytes_of(base64));
  REQUIRE(dump.has_value());
  return *dump;
}

struct Made {
  std::string op = "all_reduce";
  std::string sizes = "[8]";
  CallState state = CallState::Completed;
};

// A rank that made these calls in one group of all ranks.
FlightDump made(int rank, const std::vector<Made>& calls, const std::string& group = "0",
                std::int64_t first = 1) {
  FlightDump dump{.rank = rank, .version = "2.10", .groups = {{group, {"default_pg", {}}}}};
  std::int64_t number = first;
  for (const Made& call : calls)
    dump.calls.push_back({.group = group,
                          .number = number++,
                          .op = call.op,
                          .sizes = call.sizes,
                          .state = call.state,
                          .place = "train.py:" + std::to_string(number)});
  return dump;
}

const Made kDone{};
const Made kWaits{.state = CallState::Started};
const Made kScheduled{.state = CallState::Scheduled};

}  // namespace

TEST_CASE("a dump that torch's own writer made with Gloo is read") {
  const FlightDump dump = dump_of(0, test::kRealDesync0);
  CHECK(dump.version == "2.10");
  CHECK(dump.groups.at("0").description == "default_pg");
  REQUIRE(dump.calls.size() == 3);
  CHECK(dump.calls[0] == FlightCall{.group = "0",
                                    .number = 1,
                                    .op = "all_reduce",
                                    .sizes = "[4, 3]",
                                    .types = "Float",
                                    .state = CallState::Completed,
                                    .place = "train.py:4 in step"});
  CHECK(dump.calls[1].op == "broadcast");
  CHECK(dump.calls[2].state == CallState::Scheduled);
  CHECK(dump.calls[2].place == "train.py:9");
}

TEST_CASE("a desync is found in dumps of torch") {
  const Diagnosis found =
      diagnose_calls({dump_of(0, test::kRealDesync0), dump_of(1, test::kRealDesync1),
                      dump_of(2, test::kRealDesync0)});
  CHECK(found.fault == FaultClass::Desync);
  CHECK(ranks_text(found.ranks) == "rank 1");
  CHECK(found.summary ==
        "desync in call 3 of group default_pg: rank 1 called all_gather of [5] at train.py:8, "
        "ranks 0, 2 called all_reduce of [8] at train.py:9");
  CHECK(found.evidence == std::vector<std::string>{"rank 1: all_gather of [5] at train.py:8",
                                                   "ranks 0, 2: all_reduce of [8] at train.py:9"});
}

TEST_CASE("a rank that did not make a call is found in dumps of torch") {
  const Diagnosis found =
      diagnose_calls({dump_of(0, test::kRealMissing0), dump_of(1, test::kRealMissing0),
                      dump_of(2, test::kRealMissing2)});
  CHECK(found.fault == FaultClass::MissingRank);
  CHECK(ranks_text(found.ranks) == "rank 2");
  CHECK(found.summary ==
        "rank 2 has not made call 3 of group default_pg, all_reduce, in which the others wait");
  REQUIRE(found.evidence.size() == 2);
  CHECK(found.evidence.front() == "rank 2: last made call 2, broadcast of [2] at train.py:6");
}

TEST_CASE("nothing is found in the dumps of a healthy job") {
  CHECK(diagnose_calls({dump_of(0, test::kRealHealthy0), dump_of(1, test::kRealHealthy0)}) ==
        Diagnosis());
  CHECK(diagnose_calls({}) == Diagnosis());
  CHECK(diagnose_calls({dump_of(0, test::kRealDesync0)}) == Diagnosis());
}

TEST_CASE("the JSON of torch's control server is read") {
  // Written by torch 2.15 for a Gloo job, abridged.
  const std::string call =
      R"("input_dtypes":["Float"],"input_sizes":[[4,3]],"is_p2p":false,"output_dtypes":["Float"],)"
      R"("output_sizes":[[4,3]],"pg_id":0,"process_group":["0","default_pg"],"state":"scheduled",)"
      R"("timeout_ms":25000)";
  const Result<FlightDump> dump = read_flight_json(
      1, R"({"comm_lib_version":"","entries":[{"collective_seq_id":1,"profiling_name":)"
         R"("gloo:all_reduce","retired":true,)" +
             call +
             R"(},{"collective_seq_id":2,"profiling_name":"gloo:broadcast","retired":false,)" +
             call + R"(}],"version":"2.10"})");
  REQUIRE(dump.has_value());
  CHECK(dump->rank == 1);
  REQUIRE(dump->calls.size() == 2);
  CHECK(dump->calls[0].state == CallState::Completed);
  CHECK(dump->calls[1] == FlightCall{.group = "0",
                                     .number = 2,
                                     .op = "broadcast",
                                     .sizes = "[4, 3]",
                                     .types = "Float",
                                     .state = CallState::Scheduled});
  CHECK(dump->groups.at("0").description == "default_pg");
  for (const char* wrong :
       {"", "[]", "{}", "7", R"({"entries":3})", R"({"version":"3.0","entries":[]})"})
    CHECK_FALSE(read_flight_json(0, wrong).has_value());
  // As in a pickle, a call without a number is left out.
  for (const char* none : {R"({"entries":[]})", R"({"entries":[{"collective_seq_id":"x"}, 3]})"})
    CHECK(read_flight_json(0, none)->calls.empty());
  std::string many = R"({"entries":[0)";
  for (std::size_t i = 0; i < pickle::kMostNodes; ++i) many += ",0";
  CHECK_FALSE(read_flight_json(0, many + "]}").has_value());
}

TEST_CASE("lines of evidence keep what a comparison of dumps needs") {
  const FlightDump dump = dump_of(0, test::kRealDesync0);
  const LineList lines = flight_lines(dump);
  REQUIRE(lines.size() == 3);
  CHECK(lines[2] ==
        "Flight Recorder: call 3 in 0 (default_pg): all_reduce, scheduled, of [8] Float, at "
        "train.py:9");
  LineList others{"process python", "  thread python"};
  others.insert(others.begin(), lines.begin(), lines.end());
  const FlightDump read = flight_dump_of(0, others);
  REQUIRE(read.calls.size() == 3);
  CHECK(read.groups.at("0").description == "default_pg");
  CHECK(read.calls[2].number == 3);
  CHECK(read.calls[2].op == "all_reduce");
  CHECK(read.calls[2].sizes == "[8] Float");
  CHECK(read.calls[2].place == "train.py:9");
  CHECK(read.calls[0].state == CallState::Completed);

  const auto through_lines = [](int rank, const FlightDump& each) {
    return flight_dump_of(rank, flight_lines(each));
  };
  const Diagnosis found =
      diagnose_calls({through_lines(0, dump), through_lines(1, dump_of(1, test::kRealDesync1)),
                      through_lines(2, dump)});
  CHECK(found.fault == FaultClass::Desync);
  CHECK(ranks_text(found.ranks) == "rank 1");

  // Long lists: the last completed calls, the first that wait and the last one.
  std::vector<Made> calls(1000, kDone);
  calls.insert(calls.end(), 100, kScheduled);
  const FlightDump cut = through_lines(3, made(3, calls));
  REQUIRE(cut.calls.size() == 9);
  CHECK(cut.calls.front().number == 997);
  CHECK(cut.calls[4].number == 1001);
  CHECK(cut.calls.back().number == 1100);
}

TEST_CASE("names in a dump cannot add lines to the evidence") {
  FlightDump dump = made(0, {{.op = "all\nrank 7: (gdb), at x", .sizes = "[8]"}}, "a: (b\n, c");
  dump.calls[0].types = "Float\nnote: x";
  dump.calls[0].place = "a.py:1\nrank 3: (gdb)";
  const LineList lines = flight_lines(dump);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find('\n') == std::string::npos);
  const FlightDump read = flight_dump_of(0, lines);
  REQUIRE(read.calls.size() == 1);
  CHECK(read.calls[0].number == 1);
  for (const char* wrong : {"Flight Recorder: call ", "Flight Recorder: call x in 0: a, completed",
                            "Flight Recorder: call 1 in 0", "Flight Recorder: call 1 in 0: a"})
    CHECK(flight_dump_of(0, {wrong}).calls.empty());
}

TEST_CASE("dumps of protocols 2 to 4 with NCCL's schema are read") {
  const FlightDump dump = dump_of(0, test::kMadeStarted4);
  CHECK(ranks_text(dump.groups.at("0").ranks) == "ranks 0-2");
  REQUIRE(dump.calls.size() == 3);
  CHECK(dump.calls[1].op == "all_gather");
  CHECK(dump.calls[2].state == CallState::Started);
  CHECK(dump.calls[2].place == "train.py:12 in step");
  CHECK(dump_of(1, test::kMadeScheduled3).calls[2].state == CallState::Scheduled);
  CHECK(dump_of(2, test::kMadeBehind2).calls.size() == 2);
  const Diagnosis found =
      diagnose_calls({dump_of(0, test::kMadeStarted4), dump_of(1, test::kMadeStarted4),
                      dump_of(2, test::kMadeBehind2)});
  CHECK(found.fault == FaultClass::MissingRank);
  CHECK(ranks_text(found.ranks) == "rank 2");
}

TEST_CASE("a rank that has made a call and not started it is found") {
  const Diagnosis found =
      diagnose_calls({dump_of(0, test::kMadeStarted4), dump_of(1, test::kMadeScheduled3),
                      dump_of(2, test::kMadeStarted4)});
  CHECK(ranks_text(found.ranks) == "rank 1");
  CHECK(found.summary ==
        "rank 1 has not started call 3 of group default_pg, all_reduce, in which the others wait");
}

TEST_CASE("the first difference counts") {
  struct Case {
    const char* name;
    std::vector<FlightDump> dumps;
    FaultClass fault;
    std::string ranks;
  };
  const Made other_size{.sizes = "[7]"};
  const Made scatter{.op = "scatter", .sizes = "[8]", .state = CallState::Started};
  const Made scatter_of_other{.op = "scatter", .sizes = "[1], [1]", .state = CallState::Started};
  const std::vector<Case> cases = {
      {"sizes",
       {made(0, {kDone, other_size}), made(1, {kDone, kDone}), made(2, {kDone, kDone})},
       FaultClass::Desync,
       "rank 0"},
      {"sizes that may differ",
       {made(0, {scatter}), made(1, {scatter_of_other})},
       FaultClass::None,
       "ranks"},
      {"two ranks that differ",
       {made(0, {kWaits}), made(1, {{.op = "barrier"}})},
       FaultClass::Desync,
       "ranks 0, 1"},
      {"all wait in the same call",
       {made(0, {kWaits}), made(1, {kWaits})},
       FaultClass::None,
       "ranks"},
      {"a rank that is ahead, and no rank that waits",
       {made(0, {kDone, kDone}), made(1, {kDone})},
       FaultClass::None,
       "ranks"},
      {"a rank that made no call",
       {made(0, {kWaits}), made(1, {}), made(2, {kWaits})},
       FaultClass::MissingRank,
       "rank 1"},
      {"older calls that left the buffer of one rank",
       {made(0, {kDone, kDone, kWaits}), made(1, {kDone, kWaits}, "0", 2)},
       FaultClass::None,
       "ranks"},
      {"the same name on other ranks is another group",
       {[] {
          FlightDump dump = made(0, {kWaits}, "1");
          dump.groups["1"].ranks = {{0, 0}, {2, 2}};
          return dump;
        }(),
        [] {
          FlightDump dump = made(1, {{.op = "barrier"}}, "1");
          dump.groups["1"].ranks = {{1, 1}, {3, 3}};
          return dump;
        }()},
       FaultClass::None,
       "ranks"},
  };
  for (const Case& each : cases) {
    const Diagnosis found = diagnose_calls(each.dumps);
    INFO(each.name << ": " << found.summary);
    CHECK(found.fault == each.fault);
    CHECK(ranks_text(found.ranks) == each.ranks);
  }
}

TEST_CASE("a rank that is late because it waits in another group is not blamed") {
  // Rank 1 waits in group "b" for rank 2, and rank 0 waits in group "a" for rank 1.
  FlightDump zero = made(0, {kWaits}, "a");
  FlightDump one = made(1, {}, "a");
  const FlightDump one_in_b = made(1, {kWaits}, "b");
  one.groups["b"] = one_in_b.groups.at("b");
  one.calls = one_in_b.calls;
  FlightDump two = made(2, {}, "b");
  zero.groups["a"].ranks = {{0, 1}};
  one.groups["a"].ranks = {{0, 1}};
  one.groups["b"].ranks = {{1, 2}};
  two.groups["b"].ranks = {{1, 2}};
  const Diagnosis found = diagnose_calls({zero, one, two});
  CHECK(found.fault == FaultClass::MissingRank);
  CHECK(ranks_text(found.ranks) == "rank 2");
}

TEST_CASE("the dumps decide what a hang or a timeout of a collective is") {
  const Diagnosis calls = diagnose_calls({made(0, {kWaits}), made(1, {{.op = "barrier"}})});
  Failure failure;
  failure.status = Exited{1};
  failure.stderr_tail = {"RuntimeError: Timed out waiting 6000ms for recv operation to complete"};
  Outcome outcome;
  outcome.world_size = 2;
  outcome.ending = WorkersFailed{{failure}};
  CHECK(diagnose(outcome).fault == FaultClass::MissingRank);
  CHECK(diagnose(outcome, {.calls = calls}) == calls);
  failure.status = Hung{"no output"};
  outcome.ending = WorkersFailed{{failure}};
  CHECK(diagnose(outcome, {.calls = calls}) == calls);
  failure.status = Killed{SIGSEGV};
  outcome.ending = WorkersFailed{{failure}};
  CHECK(diagnose(outcome, {.calls = calls}).fault == FaultClass::Crash);
}

TEST_CASE("a dump that is cut or changed anywhere is read or rejected") {
  const std::string whole = bytes_of(test::kRealDesync1);
  for (std::size_t size = 0; size < whole.size(); ++size)
    CHECK_FALSE(read_flight_dump(0, std::string_view(whole).substr(0, size)).has_value());
  std::mt19937 random(5);
  const FlightDump other = dump_of(1, test::kRealDesync0);
  for (int i = 0; i < 5000; ++i) {
    std::string changed = whole;
    for (int k = 0; k < 3; ++k)
      changed[random() % changed.size()] = static_cast<char>(random() % 256);
    const Result<FlightDump> dump = read_flight_dump(0, changed);
    if (!dump) continue;
    const Diagnosis found = diagnose_calls({*dump, other});
    CHECK(found.summary.size() <= kDiagnosisLineBytes);
    CHECK(found.evidence.size() <= kMostEvidenceLines);
  }
}

TEST_CASE("a pickle that is no dump is rejected") {
  using namespace std::string_literals;
  const Result<FlightDump> none = read_flight_dump(0, "\x80\x02N."s);
  REQUIRE_FALSE(none.has_value());
  CHECK_THAT(none.error().message, ContainsSubstring("not a dump of the Flight Recorder"));
  CHECK_FALSE(read_flight_dump(0,
                               "\x80\x02}X\x07\x00\x00\x00versionX\x03\x00\x00\x00"
                               "3.0s."s)
                  .has_value());
}

}  // namespace drun::agent

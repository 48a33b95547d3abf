// The texts of real failures of GPUs, which tests/bench/faults.py --gpu replays in jobs of drun:
// here as the failures that such a job would report.
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "agent/diagnosis/diagnosis.h"
#include "agent/diagnosis/error_text.h"
#include "agent/diagnosis/gpu_faults.h"
#include "agent/output/worker_stream.h"
#include "tests/support/catch.h"
#include "tests/support/places.h"

namespace drun::agent {
namespace {

constexpr int kFaultyRank = 1;

std::string with_numbers(std::string text, const Failure& failure) {
  const auto replace = [&text](std::string_view mark, int number) {
    for (std::size_t at = text.find(mark); at != text.npos; at = text.find(mark, at))
      text.replace(at, mark.size(), std::to_string(number));
  };
  replace("@RANK@", failure.rank);
  replace("@PID@", failure.pid);
  return text;
}

// `part`: a fault of the file, or what a peer of the faulty rank printed.
Failure failure_of_text(int rank, const nlohmann::json& part) {
  Failure failure;
  failure.rank = rank;
  failure.node_rank = rank;
  failure.pid = 4711 + rank;
  const std::string end = part.at("end");
  if (const std::string code = end.substr(end.find(' ') + 1); end.starts_with("signal"))
    failure.status = Killed{std::stoi(code)};
  else
    failure.status = Exited{std::stoi(code)};
  std::string text;
  for (const std::string line : part.at("text"))
    if (!line.starts_with("@FRAMES")) text += with_numbers(line, failure) + "\n";
  failure.stderr_tail = last_lines(text);
  std::vector<std::string> log;
  for (const std::string line : part.value("kernel", nlohmann::json::array()))
    add_gpu_fault(log, with_numbers(line, failure));
  failure.traceback = with_kernel_log("", log);
  return failure;
}

bool names(const RankRanges& ranks, int rank) {
  return !intersection(ranks, {{rank, rank}}).empty();
}

}  // namespace

TEST_CASE("recorded texts of GPU failures have the right class, rank, cause and error") {
  const auto records =
      nlohmann::json::parse(std::ifstream(testing::source_file("tests/bench/gpu_faults.json")));
  int read = 0;
  for (const nlohmann::json& fault : records.at("faults")) {
    if (fault.at("end") == "hang") continue;  // needs stacks
    ++read;
    const Failure faulty = failure_of_text(kFaultyRank, fault);
    INFO(fault.at("kind") << ", " << fault.at("source") << "\n" << faulty.stderr_tail.size());
    std::vector<std::vector<Failure>> orders{{faulty}};
    const std::string of_peers = fault.at("peers");
    const bool is_same = of_peers == "same";
    const nlohmann::json& peer = is_same ? fault : records.at("peers").at(of_peers);
    if (peer.at("end") != "hang") {
      const Failure other = failure_of_text(0, peer);
      orders.push_back({faulty, other});
      orders.push_back({other, faulty});
      if (!is_same) orders.push_back({other, failure_of_text(2, peer), faulty});
    }
    for (const std::vector<Failure>& order : orders) {
      const Diagnosis found = diagnose({.ending = WorkersFailed{order},
                                        .node_count = 3,
                                        .world_size = 3,
                                        .duration = std::chrono::seconds(2)});
      INFO("first rank " << order.front().rank << " of " << order.size() << ": " << found.summary
                         << "; " << found.advice);
      CHECK(word_of(found.fault) == fault.at("wanted").get<std::string>());
      if (fault.at("wanted") != "network")
        CHECK((names(found.ranks, kFaultyRank) || (is_same && names(found.ranks, 0))));
      CHECK(count_of(found.ranks) <= 2);
      if (fault.contains("cause")) CHECK(found.summary == with_numbers(fault.at("cause"), faulty));
    }
    if (!fault.contains("error")) continue;
    std::string error;
    for (const std::string& line : error_lines(faulty)) error += (error.empty() ? "" : "\n") + line;
    CHECK(error == with_numbers(fault.at("error"), faulty));
  }
  CHECK(read > 60);
}

}  // namespace drun::agent

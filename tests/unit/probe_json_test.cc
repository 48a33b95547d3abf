// The messages between probes, and the pairing of nodes.
#include <set>

#include "tests/support/catch.h"
#include "tests/support/probe_reports.h"
#include "worker_lib/tools/probe/examine.h"
#include "worker_lib/tools/probe/formats.h"
#include "worker_lib/tools/probe/pair_rate.h"

#include <nlohmann/json.hpp>

namespace drun::probe {

TEST_CASE("a report survives the conversion to JSON and back, with and without limits") {
  NodeReport report = test::healthy_report(1, 3);
  report.facts.nofile.reset();
  report.pairs[0].problem = "no";
  CHECK(parse_report(to_json(report)).value() == report);
  const std::vector<Finding> findings{{true, {1, 2}, "what", "remedy"}, {}};
  CHECK(parse_findings(to_json(findings)).value() == findings);
}

TEST_CASE("an invalid report is rejected") {
  const std::string good = to_json(test::healthy_report(1, 3));
  CHECK_FALSE(parse_report(""));
  CHECK_FALSE(parse_report("{}"));
  CHECK_FALSE(parse_report("[]"));
  CHECK_FALSE(parse_report(good.substr(0, good.size() / 2)));
  CHECK_FALSE(parse_report(std::string(100'000, ' ') + good));
  std::string wrong = good;
  wrong.replace(wrong.find("\"mtu\":9000"), 10, "\"mtu\":\"xx\"");
  CHECK_FALSE(parse_report(wrong));
  CHECK_FALSE(parse_findings("[1]"));
  CHECK_FALSE(parse_findings("7"));
}

TEST_CASE("the JSON result shows whether all nodes are healthy, and is valid for any node data") {
  Reports reports = test::healthy_reports(2);
  reports[1]->facts.host = "\xff";
  auto json = nlohmann::json::parse(whole_json(reports, {}));
  CHECK(json["schema"] == "drun.doctor/1");
  CHECK(json["is_well"] == true);
  CHECK(json["nodes"][1]["facts"]["host"] == "\xef\xbf\xbd");
  reports[1].reset();
  json = nlohmann::json::parse(whole_json(reports, findings_of(reports)));
  CHECK(json["is_well"] == false);
  CHECK(json["nodes"][1].is_null());
  CHECK(json["findings"][0]["is_problem"] == true);
}

TEST_CASE("each pair of neighbors works together once in each direction, without deadlock") {
  for (int count = 1; count <= 40; ++count) {
    CAPTURE(count);
    std::multiset<int> edges;
    std::vector<std::size_t> at(static_cast<std::size_t>(count));
    for (int node = 0; node < count; ++node) {
      for (const Pairing& pairing : pairings(node, count)) edges.insert(pairing.edge);
    }
    CHECK(edges.size() == (count < 2 ? 0U : count == 2 ? 2U : 2U * static_cast<unsigned>(count)));
    // Advance every node until none can. All pairings must complete, so no node waits forever.
    bool goes_on = true;
    std::size_t done = 0;
    while (goes_on) {
      goes_on = false;
      for (int node = 0; node < count; ++node) {
        const auto own = pairings(node, count);
        std::size_t& next = at[static_cast<std::size_t>(node)];
        if (next >= own.size()) continue;
        const Pairing& mine = own[next];
        const auto theirs = pairings(mine.with, count);
        std::size_t& other = at[static_cast<std::size_t>(mine.with)];
        if (other >= theirs.size() || theirs[other].edge != mine.edge) continue;
        CHECK(theirs[other].is_first != mine.is_first);
        ++next;
        ++other;
        done += 2;
        goes_on = true;
      }
    }
    CHECK(done == edges.size());
  }
}

TEST_CASE("a node visits its neighbors and node 0, and node 0 visits all nodes") {
  CHECK(visits_of(0, 1).empty());
  CHECK(visits_of(1, 2) == std::vector<int>{0});
  CHECK(visits_of(3, 6) == std::vector<int>{0, 2, 4});
  CHECK(visits_of(5, 6) == std::vector<int>{0, 4});
  CHECK(visits_of(0, 4) == std::vector<int>{1, 2, 3});
}

TEST_CASE("valid probe options are accepted, and others are rejected") {
  const std::vector<std::string> words{
      "--drun-version=1.2", "--cores=4",  "--gpus=0", "--json", "--quiet",
      "--problem=a=b",      "--preflight"};
  CHECK(parse_task(words).value() == Task{.version = "1.2",
                                          .cores = 4,
                                          .gpus = 0,
                                          .problem = "a=b",
                                          .is_json = true,
                                          .is_quiet = true,
                                          .is_preflight = true});
  for (const char* word : {"x", "--cores=-1", "--cores=x", "--help"}) {
    const std::vector<std::string> wrong{word};
    CHECK_FALSE(parse_task(wrong));
  }
}

}  // namespace drun::probe

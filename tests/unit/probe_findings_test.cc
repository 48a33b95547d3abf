// The findings of drun doctor from the reports of all nodes.
#include "worker_lib/tools/probe/findings.h"

#include "tests/support/catch.h"
#include "tests/support/probe_reports.h"
#include "worker_lib/tools/probe/formats.h"

namespace drun::probe {
namespace {

using test::healthy_reports;

// Returns the only finding.
Finding only(const Reports& reports) {
  const std::vector<Finding> findings = findings_of(reports);
  INFO(findings_text(findings));
  REQUIRE(findings.size() == 1);
  CHECK_FALSE(findings[0].remedy.empty());
  return findings[0];
}

Visit& visit_of(Reports& reports, int node, int to) {
  for (Visit& visit : reports[static_cast<std::size_t>(node)]->visits) {
    if (visit.to == to) return visit;
  }
  FAIL("no such visit");
  throw 0;
}

void break_visit(Reports& reports, int node, int to) {
  Visit& visit = visit_of(reports, node, to);
  visit.has_arrived = visit.large_ones_too = false;
  visit.reason = "connection refused";
}

}  // namespace

TEST_CASE("healthy nodes have no findings, for any number of nodes") {
  const int count = GENERATE(1, 2, 3, 4, 9);
  const Reports reports = healthy_reports(count);
  INFO(findings_text(findings_of(reports)));
  CHECK(findings_of(reports).empty());
  CHECK_FALSE(has_problem(findings_of(reports)));
}

TEST_CASE("a node with a lower limit than the others is named, with both values and a remedy") {
  Reports reports = healthy_reports(4);
  reports[2]->facts.nofile = 1024;
  const Finding finding = only(reports);
  CHECK(finding.is_problem);
  CHECK(finding.nodes == std::vector<int>{2});
  CHECK(finding.what == "node 2 (gpu2) has nofile 1024, the others 1048576");
  CHECK_THAT(finding.remedy, ContainsSubstring("ulimit"));
}

TEST_CASE("of two nodes the one with the lower limit is named, and a higher limit is no finding") {
  Reports two = healthy_reports(2);
  two[0]->facts.nofile = 4096;
  CHECK(only(two).what == "node 0 (gpu0) has nofile 4096, node 1 (gpu1) 1048576");
  Reports four = healthy_reports(4);
  four[1]->facts.nofile.reset();
  CHECK(findings_of(four).empty());
}

TEST_CASE("several nodes with the same problem share one line") {
  Reports reports = healthy_reports(9);
  for (const std::size_t node : {2U, 3U, 4U, 7U}) reports[node]->facts.gpus = 7;
  CHECK(only(reports).what == "nodes 2-4, 7 have GPUs: 7, the others 8");
}

TEST_CASE("a difference in any property is found") {
  Reports reports = healthy_reports(3);
  NodeFacts& facts = reports[1]->facts;
  const auto [action, text, is_problem] = GENERATE(table<int, std::string, bool>({
      {0, "has drun 0.2.0, the others 0.1.0", true},
      {1, "has NCCL none, the others 2.21.5", true},
      {2, "has GPU driver 535, the others 550.54.15", false},
      {3, "has MTU 1500, the others 9000", false},
      {4, "has memory: 256 GiB, the others 512 GiB", false},
      {5, "has cores: 32, the others 64", false},
      {6, "has /dev/shm of 100 GiB, the others 256 GiB", false},
      {7, "has nproc 100, the others unlimited", false},
      {8, "InfiniBand needs locked memory", true},
      {9, "nofile is under 1024", true},
      {10, "less than 64 MiB free in /dev/shm", false},
      {11, "node 1 (gpu1): ./train is not on PATH", true},
      {12, "the clock of node 1 (gpu1) is 7.5 s ahead of node 0's", false},
      {13, "its name gpu1 is not known (on nodes 0, 2)", false},
      {14, "its name gpu1 leads to 127.0.1.1, but it is at 10.0.0.1", false},
      {15, "its address 10.0.0.1 leads to the name gpu9", false},
      {16, "on node 1 (gpu1) the name service does not answer within 5 s", false},
  }));
  const auto all_names = [&](auto change) {
    for (const std::size_t node : {0U, 2U}) {
      for (NameLookup& lookup : reports[node]->names) {
        if (lookup.of == 1) change(lookup);
      }
    }
  };
  if (action == 0) facts.version = "0.2.0";
  if (action == 1) facts.nccl = "";
  if (action == 2) facts.driver = "535";
  if (action == 3) facts.mtu = 1500;
  if (action == 4) facts.memory_bytes = std::uint64_t{256} << 30;
  if (action == 5) facts.cores = 32;
  if (action == 6) facts.shm_bytes = std::uint64_t{100} << 30;
  if (action == 7) facts.nproc = 100;
  if (action == 8) facts.memlock_bytes = 65536;
  if (action == 9) {
    for (auto& report : reports) report->facts.nofile = 256;
  }
  if (action == 10) facts.shm_free_bytes = 4096;
  if (action == 11) facts.problem = "./train is not on PATH";
  if (action == 12) visit_of(reports, 1, 0).clock_ahead_s = 7.5;
  if (action == 13) all_names([](NameLookup& lookup) { lookup.addresses.clear(); });
  if (action == 14) all_names([](NameLookup& lookup) { lookup.addresses = {"127.0.1.1"}; });
  if (action == 15) all_names([](NameLookup& lookup) { lookup.name_back = "gpu9"; });
  if (action == 16) reports[1]->names[0].is_done = false;
  const std::vector<Finding> findings = findings_of(reports);
  const std::string lines = findings_text(findings);
  CHECK_THAT(lines, ContainsSubstring(text));
  CHECK(has_problem(findings) == is_problem);
  CHECK_FALSE(findings.empty());
}

TEST_CASE("an unreachable node and a node that reaches no other are each named once") {
  Reports reports = healthy_reports(5);
  SECTION("no node reaches it") {
    for (const int node : {0, 1, 3}) break_visit(reports, node, 2);
    CHECK(only(reports).what ==
          "no node reaches node 2 (gpu2) at 10.0.0.2, eth0: connection refused");
  }
  SECTION("it reaches no node") {
    for (const int to : {0, 1, 3}) break_visit(reports, 2, to);
    CHECK(only(reports).what == "node 2 (gpu2) reaches none of the others: connection refused");
  }
  SECTION("two nodes do not reach each other") {
    break_visit(reports, 2, 3);
    break_visit(reports, 3, 2);
    const Finding finding = only(reports);
    CHECK(finding.nodes == std::vector<int>{2, 3});
    CHECK(finding.what ==
          "node 2 (gpu2) at 10.0.0.2, eth0 and node 3 (gpu3) at 10.0.0.3, eth0 do not reach each "
          "other: connection refused");
  }
  SECTION("only one direction fails") {
    break_visit(reports, 2, 3);
    CHECK(only(reports).what ==
          "node 2 (gpu2) does not reach node 3 (gpu3) at 10.0.0.3, eth0: connection refused");
  }
}

TEST_CASE("a route that carries only small messages points to the MTU") {
  Reports reports = healthy_reports(4);
  visit_of(reports, 2, 3).large_ones_too = false;
  CHECK_THAT(only(reports).what, ContainsSubstring("small messages arrive, large ones do not (MTU "
                                                   "9000 and 9000)"));
}

TEST_CASE("a slow node is named, and among fast nodes a slow connection") {
  const int count = GENERATE(3, 4, 7);
  Reports reports = healthy_reports(count);
  SECTION("a node") {
    test::set_rate(reports, 0, 1, 2);
    test::set_rate(reports, 1, 2, 3);
    const Finding finding = only(reports);
    CHECK(finding.nodes == std::vector<int>{1});
    CHECK(finding.is_problem);
    CHECK_THAT(finding.what, ContainsSubstring("node 1 (gpu1) is slow: 3 GB/s with its best "
                                               "neighbor, 10 GB/s between others"));
  }
  SECTION("a connection") {
    test::set_rate(reports, 1, 2, 2);
    const Finding finding = only(reports);
    CHECK(finding.nodes == std::vector<int>{1, 2});
    CHECK_THAT(finding.what, ContainsSubstring("the way between node 1 (gpu1) and node 2 (gpu2) is "
                                               "slow: 2 GB/s, 10 GB/s between others"));
  }
  SECTION("nodes on one machine are not compared") {
    for (auto& report : reports) {
      report->facts.address = "127.0.0.1";
      report->facts.host = "one";
    }
    test::set_rate(reports, 1, 2, 2);
    CHECK(findings_of(reports).empty());
  }
  SECTION("a small difference is no finding") {
    test::set_rate(reports, 0, 1, 6);
    CHECK(findings_of(reports).empty());
  }
}

TEST_CASE("a pair of nodes that cannot work together is named once, with the reason") {
  Reports reports = healthy_reports(4);
  for (const std::size_t node : {1U, 2U}) {
    for (PairRate& pair : reports[node]->pairs) {
      if (pair.with == 1 || pair.with == 2) pair = {pair.with, 0, "connection reset"};
    }
  }
  CHECK(only(reports).what ==
        "node 1 (gpu1) and node 2 (gpu2) cannot work together: connection reset");
}

TEST_CASE("a node without a report is named") {
  Reports reports = healthy_reports(3);
  reports[1].reset();
  const Finding finding = only(reports);
  CHECK(finding.is_problem);
  CHECK(finding.what == "node 1 has not told what was found there in time");
  CHECK_THAT(table_text(reports, {finding}), ContainsSubstring("\n1     ?\n"));
}

TEST_CASE("problems come before warnings, and a node gets only its own findings") {
  Reports reports = healthy_reports(5);
  reports[1]->facts.mtu = 1500;
  reports[3]->facts.nofile = 2048;
  const std::vector<Finding> findings = findings_of(reports);
  REQUIRE(findings.size() == 2);
  CHECK(findings[0].is_problem);
  CHECK_FALSE(findings[1].is_problem);
  CHECK(findings_about(1, findings) == std::vector<Finding>{findings[1]});
  CHECK(findings_about(3, findings) == std::vector<Finding>{findings[0]});
  CHECK(findings_about(0, findings).empty());
}

TEST_CASE("one node is responsible for each finding: its own node, the later of two, or node 0") {
  CHECK(node_at_fault({true, {3}, "", ""}) == 3);
  CHECK(node_at_fault({true, {1, 4}, "", ""}) == 4);
  CHECK(node_at_fault({true, {1, 4, 5}, "", ""}) == 0);
}

TEST_CASE("the table has a row for each node, aligned columns and a verdict") {
  Reports reports = healthy_reports(2);
  const std::string well = table_text(reports, {});
  CHECK_THAT(well, ContainsSubstring("2 nodes: drun 0.1.0, Linux 6.1.0, GPU driver 550.54.15, NCCL "
                                     "2.21.5, nproc unlimited, memlock unlimited\n"));
  CHECK_THAT(well, ContainsSubstring("\nnode  host  address   interface  cores  memory"));
  CHECK_THAT(well, ContainsSubstring("\n1     gpu1  10.0.0.1  eth0 9000  64     512 GiB  8     "));
  CHECK(well.ends_with("\nall is well\n"));
  reports[1]->facts.nofile = 2000;
  reports[1]->facts.host = "bad\x1b[31m";
  const std::string text = table_text(reports, findings_of(reports));
  CHECK_THAT(text, ContainsSubstring("problem  node 1 (bad?[31m) has nofile 2000, node 0 (gpu0) "
                                     "1048576; raise it"));
  CHECK(text.find('\x1b') == text.npos);
  CHECK(text.ends_with("1 problem, 1 warning\n"));  // the warning is that its name differs from DNS
}

TEST_CASE("with a thousand nodes the table shows the first nodes and those with findings") {
  Reports reports = healthy_reports(1000);
  reports[900]->facts.mtu = 1500;
  const std::string text = table_text(reports, findings_of(reports));
  CHECK_THAT(text, ContainsSubstring("\n900   gpu900"));
  CHECK_THAT(text, ContainsSubstring("and 935 nodes like these\n"));
  CHECK_THAT(text, ContainsSubstring("no problems, 1 warning\n"));
}

TEST_CASE("sizes, rates and times are short at every scale") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(64 << 20) == "64 MiB");
  CHECK(bytes_text(std::uint64_t{1536} << 30) == "1.5 TiB");
  CHECK(rate_text(11.24) == "11.2 GB/s");
  CHECK(rate_text(0.0312) == "0.031 GB/s");
  CHECK(time_text(35.4e-6) == "35 us");
  CHECK(time_text(0.0012) == "1.2 ms");
  CHECK(time_text(-3.5) == "-3.5 s");
  CHECK(clock_text(0.001, 0.002) == "within 2 ms");
  CHECK(clock_text(0.5, 0.002) == "+500 ms +-2 ms");
}

}  // namespace drun::probe

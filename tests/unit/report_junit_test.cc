#include "launcher/report/report.h"

#include <csignal>

#include "tests/support/catch.h"
#include "tests/support/job_traces.h"

namespace drun {
namespace {

using testing::count;

// Checks that every '<' begins a complete tag, and that tags are nested.
bool is_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  std::size_t at = 0;
  while ((at = xml.find('<', at)) != xml.npos) {
    const std::size_t end = xml.find('>', at);
    if (end == xml.npos) return false;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    at = end;
    if (tag.find('<') != tag.npos) return false;
    if (tag.starts_with('?') || tag.ends_with('/')) continue;
    const std::string name = tag.substr(tag.starts_with('/') ? 1 : 0, tag.find(' '));
    if (!tag.starts_with('/')) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return false;
    } else {
      open.pop_back();
    }
  }
  return open.empty();
}

Failure failed_rank(int rank) {
  Failure failure;
  failure.rank = rank;
  failure.node_rank = 1;
  failure.host = "node1";
  failure.pid = 77;
  failure.status = Exited{3};
  return failure;
}

}  // namespace

TEST_CASE("a successful job is a test suite whose test cases pass") {
  const Outcome outcome{.ending = Succeeded{},
                        .run_id = "r1",
                        .node_count = 2,
                        .world_size = 4,
                        .duration = std::chrono::milliseconds(1500)};
  const std::string xml = report_junit(outcome, 0, "");
  INFO(xml);
  CHECK(is_well_formed(xml));
  CHECK_THAT(xml, ContainsSubstring("<testsuite name=\"drun r1\" tests=\"5\" failures=\"0\" "
                                    "errors=\"0\" skipped=\"0\" time=\"1.500\">"));
  CHECK(count(xml, "<testcase classname=\"drun.r1\" name=\"rank ") == 4);
  CHECK(count(xml, "<failure") == 0);
  CHECK(count(xml, "name=\"exit_code\" value=\"0\"") == 1);
}

TEST_CASE("the root cause is the failure of the job, and stopped ranks are skipped") {
  Failure root = failed_rank(2);
  root.message = "out of luck";
  root.stderr_tail = {"last words"};
  Outcome outcome{.ending = WorkersFailed{{root, failed_rank(1)}},
                  .run_id = "r1",
                  .node_count = 2,
                  .world_size = 4};
  outcome.faults.push_back({.fault = "exit:rank=2:code=3@1s", .time = WallTime{}, .rank = 2});
  const std::string xml = report_junit(outcome, 3, "drun: job failed\n");
  INFO(xml);
  CHECK(is_well_formed(xml));
  CHECK_THAT(xml, ContainsSubstring("tests=\"5\" failures=\"3\" errors=\"0\" skipped=\"2\""));
  CHECK_THAT(xml, ContainsSubstring("name=\"job\" time=\"0.000\">\n      <failure message=\"rank 2 "
                                    "on node 1 (node1): exit code 3\""));
  CHECK(count(xml, "message: out of luck") == 2);
  CHECK(count(xml, "stderr | last words") == 2);
  CHECK(count(xml, "<skipped") == 2);
  CHECK(count(xml, "<system-out>drun: job failed\n</system-out>") == 1);
  CHECK(count(xml, "<property name=\"fault\" value=\"exit:rank=2:code=3@1s at ") == 1);
}

TEST_CASE("other outcomes are errors of the job") {
  const auto xml_of = [](Ending ending) {
    return report_junit({.ending = std::move(ending), .run_id = "r", .world_size = 1}, 1, "text");
  };
  for (const std::string& xml :
       {xml_of(Interrupted{SIGINT, 0, "n"}), xml_of(NodeLost{1, "n", false, "silent"}),
        xml_of(NotRun{Error{ErrorCode::Timeout, "no answer"}}), xml_of(WorkersFailed{}),
        xml_of(Preempted{"the time is up"})}) {
    INFO(xml);
    CHECK(is_well_formed(xml));
    CHECK(count(xml, "<error ") + count(xml, "<failure ") == 1);
    CHECK(count(xml, "<skipped") == 1);
  }
}

TEST_CASE("hostile bytes are escaped or replaced in the XML") {
  CHECK(xml_text("a<b>&\"c\"") == "a&lt;b&gt;&amp;&quot;c&quot;");
  CHECK(xml_text("tab\tline\nreturn\r") == "tab\tline\nreturn&#13;");
  const std::string bad = "\xef\xbf\xbd";
  CHECK(xml_text(std::string_view("\0\x1b[31m\x7f", 7)) == bad + bad + "[31m" + bad);
  CHECK(xml_text("\xff\xc0\x80") == bad + bad + bad);
  CHECK(xml_text("\xed\xa0\x80") == bad + bad + bad);            // a surrogate
  CHECK(xml_text("\xe2\x82") == bad);                            // truncated
  CHECK(xml_text("\xef\xbf\xbf") == bad);                        // U+FFFF
  CHECK(xml_text("\xc2\x9b") == bad);                            // a C1 control character
  CHECK(xml_text("\xe2\x80\xae\xe2\x81\xa6") == bad + bad);      // turn the direction of text
  CHECK(xml_text("\xf4\x90\x80\x80") == bad + bad + bad + bad);  // beyond U+10FFFF
  CHECK(xml_text("\xf0\x9f\x98\x80 \xe2\x82\xac") == "\xf0\x9f\x98\x80 \xe2\x82\xac");

  Failure failure = failed_rank(0);
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  failure.message = "]]></failure><testcase name=\"fake\"/>" + all;
  failure.host = failure.traceback = failure.message;
  failure.stderr_tail = {failure.message};
  const std::string xml =
      report_junit({.ending = WorkersFailed{{failure}}, .run_id = all, .world_size = 1}, 3, all);
  CHECK(is_well_formed(xml));
  CHECK(count(xml, "<testcase") == 2);
}

TEST_CASE("a large job lists some of its ranks and counts the rest") {
  const std::string xml =
      report_junit({.ending = Succeeded{}, .run_id = "r", .world_size = kMostRankCases + 5}, 0, "");
  CHECK(count(xml, "<testcase") == kMostRankCases + 1);
  CHECK(count(xml, "name=\"ranks_not_listed\" value=\"5\"") == 1);
}

}  // namespace drun

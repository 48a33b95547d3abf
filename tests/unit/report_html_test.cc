#include "launcher/report/timeline_views.h"

#include "tests/support/catch.h"
#include "tests/support/job_events.h"
#include "tests/support/machine.h"

namespace drun {
namespace {

using test::AgentEvents;
using test::events_of;
using test::ModelJob;

std::string page_of(const std::string& lines) {
  timeline::Builder builder;
  builder.take(lines);
  const auto job = builder.build();
  REQUIRE(job.has_value());
  return report_html(*job);
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++count;
  return count;
}

const std::string kHostile =
    "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&</pre></style>\x1b[31m\xe2\x80\xae";

}  // namespace

TEST_CASE("text in a page has no markup, control characters or direction overrides") {
  CHECK(html_text("a<b>&\"'") == "a&lt;b&gt;&amp;&quot;&#39;");
  CHECK(html_text("\xe2\x80\xae") == "\\xe2\\x80\\xae");
  CHECK(html_text("\xe2\x81\xa6 x") == "\\xe2\\x81\\xa6 x");
  CHECK(html_text("\xe2\x80\x94") == "\xe2\x80\x94");  // a dash is kept
  CHECK(html_text(std::string("\x01\0", 2)).find('\x01') == std::string::npos);
  CHECK(html_text("") == "");
}

TEST_CASE("output of a worker is never interpreted as markup") {
  std::string text = events_of({.last_line = kHostile});
  AgentEvents events("<b>gpu9</b>", 99);
  events.add(0, agent::AgentStarted{.command = {"<script>x</script>"},
                                    .log_directory = "/tmp/\"><script>y</script>",
                                    .environment = {{"NCCL_<i>", "<script>z</script>"}}});
  events.add(1, agent::RoundBegan{World{
                    .run_id = "night", .node_rank = 5, .node_count = 2, .master_addr = "gpu0"}});
  events.add(2, agent::RoundStopping{0, "lost <script>w</script>"});
  events.add(9, agent::NodeLeftOut{LeftOut{.host = "<u>", .reason = "<script>v</script>"}});
  const std::string page = page_of(text + events.text());
  CHECK(page.find("<script") == page.npos);
  CHECK(page.find("<img") == page.npos);
  CHECK(page.find("<b>gpu9") == page.npos);
  CHECK(page.find("<i>") == page.npos);
  CHECK(page.find("<u>") == page.npos);
  CHECK(page.find('\x1b') == page.npos);
  CHECK(count_of(page, "</style>") == 1);
  CHECK_THAT(page, ContainsSubstring("&lt;script&gt;alert(1)&lt;/script&gt;"));
  CHECK_THAT(page, ContainsSubstring("&lt;img src=x onerror=alert(2)&gt;"));
}

TEST_CASE("a page has no external resources") {
  const std::string page = page_of(events_of({}));
  CHECK_THAT(page, ContainsSubstring("default-src 'none'"));
  CHECK(page.find("http://") == page.npos);
  CHECK(page.find("https://") == page.npos);
  CHECK(page.find(" src=") == page.npos);
  CHECK(page.find("<link") == page.npos);
  CHECK(page.find("url(") == page.npos);
  CHECK(page.find("@import") == page.npos);
}

TEST_CASE("the headline names the rank, its node and how it ended") {
  CHECK_THAT(page_of(events_of({})),
             ContainsSubstring("<h1>Job failed: rank 1 on node 0 (gpu0) exited with code 3</h1>"));
  CHECK_THAT(page_of(events_of({.fails = false})), ContainsSubstring("<h1>Job succeeded in"));
  const std::string killed = page_of(events_of({.rounds = 2, .is_cut_short = true}));
  CHECK_THAT(killed, ContainsSubstring("<h1>No end of the job is recorded</h1>"));
  CHECK_THAT(killed, ContainsSubstring("no end recorded"));
}

TEST_CASE("secrets in commands and environments do not appear in the page") {
  AgentEvents events("gpu0", 1);
  events.add(0, agent::AgentStarted{
                    .command = {"train.py", "--token=s3cret", "--password", "hunter2"},
                    .environment = {{"NCCL_TOKEN", "s3cret"}, {"TORCH_X", "https://u:s3cret@h"}}});
  const std::string page = page_of(events.text());
  CHECK(page.find("s3cret") == page.npos);
  CHECK(page.find("hunter2") == page.npos);
  CHECK_THAT(page, ContainsSubstring(
                       "train.py &#39;--token=[redacted]&#39; --password &#39;[redacted]&#39;"));
}

TEST_CASE("pages for thousands of ranks stay below the size limit and name the failure") {
  constexpr int kShare =
      test::kSlowdown > 1 ? 8 : 1;  // sanitizers would take minutes for all ranks
  for (const auto& [nodes, ranks] :
       {std::pair(1, 4096 / kShare), std::pair(512 / kShare, 8), std::pair(4096 / kShare, 1)}) {
    CAPTURE(nodes, ranks);
    const int failing = 777 % (nodes * ranks);
    const std::string page =
        page_of(events_of({.nodes = nodes, .ranks_per_node = ranks, .failing_rank = failing}));
    CHECK(page.size() < 2'000'000);
    CHECK_THAT(page, ContainsSubstring("Job failed: rank " + std::to_string(failing) + " on node"));
  }
}

TEST_CASE("a page with hundreds of rounds stays below the size limit") {
  const std::string page = page_of(events_of({.nodes = 2, .rounds = 400}));
  CHECK(page.size() < 2'000'000);
  CHECK_THAT(page, ContainsSubstring("rounds are not shown"));
}

TEST_CASE("tables of ranks have only columns with a value") {
  const std::string page = page_of(events_of({}));
  CHECK_THAT(page, ContainsSubstring("<th>Pid<th>End<th class=r>Peak memory<th class=r>"
                                     "Processor time</thead>"));
  CHECK_THAT(page, ContainsSubstring("<td class=r>3 MiB<td class=r>5.000 s"));
  CHECK_THAT(page_of(events_of({.is_cut_short = true})),
             ContainsSubstring("<th>Time<th>Pid<th>End</thead>"));
}

TEST_CASE("bars have text for screen readers") {
  const std::string page = page_of(events_of({}));
  CHECK_THAT(page, ContainsSubstring("aria-label=\"node 0 (gpu0): "));
  CHECK(count_of(page, "<th scope=") >= 9);
}

}  // namespace drun

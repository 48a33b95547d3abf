#include "launcher/base/text.h"
#include "launcher/report/report.h"
#include "launcher/report/timeline_views.h"
#include "rendezvous/protocol/membership_text.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "agent/diagnosis/error_text.h"
#include "agent/status/redaction.h"
#include "launcher/base/words.h"

namespace drun {
namespace {

using agent::Phase;
using timeline::Job;
using timeline::Mark;
using timeline::MarkKind;
using timeline::Node;
using timeline::Rank;
using timeline::Span;
using timeline::TimedFailure;

constexpr std::size_t kNodesInGroup = 32;
constexpr std::size_t kMostRoundRows = 200;
constexpr std::size_t kMostMarkRows = 200;

constexpr std::string_view kStyle = R"css(
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2128;--dim:#59636e;--line:#d5dae0;--soft:#f4f6f8;--bad:#c0281f;--badbg:#fdecea;--good:#1a7f43;--goodbg:#e7f6ec;--warn:#8a5a00;--warnbg:#fff5dc;--code:#f4f6f8;
--c0:#aab3bf;--c1:#7a6ff0;--c2:#b06fd8;--c3:#e3b341;--c4:#2f9e5b;--c5:#e0702d;--c6:#c2408a;--c7:#5aa9c9}
@media(prefers-color-scheme:dark){:root{--bg:#14181d;--fg:#e6eaee;--dim:#9aa5b1;--line:#343c46;--soft:#1c2229;--bad:#ff8078;--badbg:#3a1d1d;--good:#6bd38f;--goodbg:#16301f;--warn:#f0c060;--warnbg:#352a12;--code:#1c2229;
--c0:#5d6875;--c1:#8f86ff;--c2:#c48bea;--c3:#e3b341;--c4:#3fb36b;--c5:#ef8345;--c6:#e062a8;--c7:#6cc0e0}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
main{max-width:1200px;margin:0 auto;padding:20px 24px 48px}
h1{font-size:24px;line-height:1.3;margin:10px 0 4px;overflow-wrap:anywhere}
h2{font-size:18px;margin:32px 0 10px}
p{margin:6px 0}.dim{color:var(--dim)}.why{font-size:17px;overflow-wrap:anywhere}
.badge{display:inline-block;padding:2px 12px;border-radius:12px;font-weight:600}
.failed{color:var(--bad);background:var(--badbg)}.succeeded{color:var(--good);background:var(--goodbg)}.other{color:var(--warn);background:var(--warnbg)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:18px 0 0;padding:0}
.tiles div{border:1px solid var(--line);border-radius:8px;padding:8px 14px;background:var(--soft)}
.tiles dt{color:var(--dim);font-size:13px}.tiles dd{margin:0;font-size:20px;font-weight:600}.tiles small{display:block;font-size:13px;font-weight:400;color:var(--dim)}
.cause{border:1px solid var(--line);border-left:4px solid var(--bad);border-radius:6px;padding:10px 18px 14px}
.cause dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:0 0 8px}.cause dt,.meta dt{color:var(--dim)}.cause dd,.meta dd{margin:0;overflow-wrap:anywhere}
.meta{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px}
pre{background:var(--code);border:1px solid var(--line);border-radius:6px;padding:10px 12px;margin:6px 0;overflow:auto;max-height:420px;font:13px/1.45 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere}
code,.num{font-family:ui-monospace,monospace;font-size:13px}
table{border-collapse:collapse;width:100%;font-size:14px}
caption{text-align:left;color:var(--dim);padding:2px 0 6px}
th,td{text-align:left;padding:3px 10px 3px 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
th{color:var(--dim);font-weight:600;white-space:nowrap}.ranks td:first-child{white-space:nowrap}.ranks td:last-child{min-width:110px}.r{text-align:right;white-space:nowrap}
td.w{min-width:180px;width:30%}
svg{display:block}svg.b{width:100%;height:16px;background:var(--soft);border-radius:3px}svg.g{height:28px}td svg.b{height:12px;margin-top:5px}
.p0{color:var(--c0)}.p1{color:var(--c1)}.p2{color:var(--c2)}.p3{color:var(--c3)}.p4{color:var(--c4)}.p5{color:var(--c5)}.p6{color:var(--c6)}.p7{color:var(--c7)}.k{color:var(--fg)}.f{color:var(--bad)}
path{stroke:currentColor;fill:none}rect{fill:currentColor}svg.g path{shape-rendering:crispEdges}rect.f,rect.k{stroke:var(--bg);stroke-width:1.5px;vector-effect:non-scaling-stroke}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none;margin:4px 0 10px;padding:0;font-size:14px}.legend svg{display:inline-block;vertical-align:-1px;margin-right:6px}
.row{display:grid;grid-template-columns:250px 1fr;gap:12px;align-items:center}
.axis{font-size:12px;color:var(--dim);position:relative;height:18px}.axis span{position:absolute;white-space:nowrap}
details{border-bottom:1px solid var(--line)}summary{cursor:pointer;padding:3px 0}details:not(.plain)>summary{list-style:none}details:not(.plain)>summary::-webkit-details-marker{display:none}.name:before{content:"\25B8\00A0"}details[open]>summary .name:before{content:"\25BE\00A0"}
summary:focus-visible{outline:2px solid var(--c1);outline-offset:2px}
details.bad>summary b{color:var(--bad)}.in{padding:4px 0 14px 16px;overflow-x:auto}.name{overflow-wrap:anywhere;font-size:14px}
tr.bad td{background:var(--badbg)}.plain{border:0}.plain>summary{font-weight:600}
.marks{position:relative}
ul.notes{padding-left:20px}
@media(max-width:700px){.row{grid-template-columns:1fr}main{padding:12px}}
@media print{:root{--bg:#fff;--fg:#000}body{font-size:11px}main{max-width:none;padding:0}h2{break-after:avoid}tr,.cause,.tiles div{break-inside:avoid}pre{max-height:none}svg,.badge,tr.bad td{print-color-adjust:exact;-webkit-print-color-adjust:exact}details.bad::details-content,details.plain::details-content{content-visibility:visible;display:block}}
)css";

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  std::string made = text;
  if (made.find('.') != made.npos) {
    while (made.ends_with('0')) made.pop_back();
    if (made.ends_with('.')) made.pop_back();
  }
  return made;
}

std::string percent(double part, double whole) {
  if (whole <= 0) return "0 %";
  return fixed(100 * part / whole, 1) + " %";
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fixed(value, value < 10 ? 1 : 0) + " " + kUnits.at(unit);
}

const char* class_of(Phase phase) {
  constexpr std::array kClasses{"p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"};
  return kClasses.at(agent::index_of(phase));
}

const char* meaning_of(Phase phase) {
  // In the order of Phase.
  constexpr std::array kMeanings{"for other nodes",
                                 "until all workers are started",
                                 "preloading modules",
                                 "until the first output of a worker",
                                 "the program",
                                 "from a failure or a stop until no process is left",
                                 "until the next round begins",
                                 "while a round runs without the node"};
  return kMeanings.at(agent::index_of(phase));
}

std::string place_of(const Failure& failure) {
  return rendezvous::node_text(failure.node_rank, failure.host);
}

// "SIGTERM" for "signal 15 (SIGTERM, terminated)"; other ends as they are.
std::string short_end(const std::string& ended) {
  const std::size_t open = ended.find(" (");
  const std::size_t comma = ended.find(',', std::min(open, ended.size()));
  if (!ended.starts_with("signal ") || open == ended.npos || comma == ended.npos) return ended;
  return ended.substr(open + 2, comma - open - 2);
}

// The optional columns of the tables of ranks: left out if no rank of the job has a value.
struct RankColumn {
  const char* head;
  bool is_number;
  std::string (*text)(const Rank& rank);
};
constexpr std::array kColumnsBeforePid{
    RankColumn{"GPU", false, [](const Rank& rank) { return rank.devices; }},
    RankColumn{"Cores", false, [](const Rank& rank) { return rank.cpus; }}};
constexpr std::array kColumnsAfterEnd{
    RankColumn{"Peak memory", true,
               [](const Rank& rank) {
                 return rank.peak_memory_bytes ? bytes_text(*rank.peak_memory_bytes) : "";
               }},
    RankColumn{
        "Processor time", true,
        [](const Rank& rank) { return rank.processor_s ? in_words(*rank.processor_s) : ""; }},
    // Relative to the node's log directory.
    RankColumn{"Log", false, [](const Rank& rank) {
                 const std::size_t begin = rank.log.find("/attempt_");
                 return begin == rank.log.npos ? rank.log : rank.log.substr(begin + 1);
               }}};

// What to leave out to limit the size.
enum class Detail { All, NoRankBars, FailedRanksOnly, FailedNodesOnly, FailedGroupsOnly };

class Page {
 public:
  Page(const Job& job, const agent::Diagnosis& diagnosis, Detail detail)
      : job_(job), diagnosis_(diagnosis), detail_(detail) {
    for (const Mark& mark : job.marks)
      if (mark.kind == MarkKind::Failure) failed_nodes_.insert(mark.node);
    scale_ = job.wall_s > 0 ? 1000 / job.wall_s : 0;
    const auto find_used = [this](const auto& columns, const std::vector<Rank>& ranks) {
      for (const RankColumn& column : columns)
        if (!has_column(column) && std::any_of(ranks.begin(), ranks.end(), [&](const Rank& rank) {
              return !column.text(rank).empty();
            }))
          columns_.insert(&column);
    };
    for (const Node& node : job.nodes)
      for (const std::vector<Rank>* ranks : {&node.ranks, &node.earlier_failures}) {
        find_used(kColumnsBeforePid, *ranks);
        find_used(kColumnsAfterEnd, *ranks);
      }
  }

  std::string make() {
    const std::string title = html_text(headline_of(job_));
    out_ =
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
        "'unsafe-inline'; base-uri 'none'; form-action 'none'\">"
        "<meta name=\"viewport\" content=\"width=device-width\"><meta name=\"referrer\" "
        "content=\"no-referrer\"><title>" +
        title + "</title><style>";
    out_ += kStyle;
    out_ += "</style></head><body><main>\n";
    write_head();
    write_cause();
    write_timeline();
    write_rounds();
    write_ledger();
    write_slow();
    write_marks();
    write_setting();
    write_list("notes", "Notes", job_.notes);
    out_ += "</main></body></html>\n";
    return std::move(out_);
  }

 private:
  void write_head();
  std::string why() const;
  void write_cause();
  void write_timeline();
  void write_rounds();
  void write_ledger();
  void write_slow();
  void write_marks();
  void write_setting();
  // A section with a list; none if there are no lines.
  void write_list(const std::string& id, const std::string& title,
                  const std::vector<std::string>& lines);
  void write_axis();
  void write_group(std::size_t first, std::size_t last);
  void write_node(std::size_t index);
  void write_ranks(const Node& node, bool is_shown_whole);
  void write_rank(const Node& node, const Rank& rank);
  bool has_column(const RankColumn& column) const { return columns_.contains(&column); }

  using Lines = std::array<std::string, agent::kPhaseCount>;

  // Adds the spans to the lines of their phases, at the height `middle`.
  void add_lines(Lines& lines, const std::vector<Span>& spans, double middle) const {
    const std::string y = fixed(middle, 2);
    for (const Span& span : spans) {
      // Keeps short spans visible.
      const double width = std::max((span.end_s - span.begin_s) * scale_, 1.5);
      lines.at(agent::index_of(span.phase)) +=
          "M" + fixed(span.begin_s * scale_, 1) + " " + y + "h" + fixed(width, 1);
    }
  }
  // One path per phase: thick lines need a third of the bytes of rectangles.
  static std::string paths(const Lines& lines) {
    std::string text;
    for (std::size_t i = 0; i < lines.size(); ++i)
      if (!lines.at(i).empty())
        text += std::string("<path class=") + class_of(static_cast<Phase>(i)) + " d=\"" +
                lines.at(i) + "\"/>";
    return text;
  }
  std::string bars(const std::vector<Span>& spans, double height) const {
    Lines lines;
    add_lines(lines, spans, height / 2);
    return paths(lines);
  }
  std::string marks_of(std::size_t node) const {
    std::string text;
    std::size_t count = 0;
    for (const Mark& mark : job_.marks) {
      if (mark.node != node || ++count > 50) continue;
      const bool is_bad = mark.kind == MarkKind::Failure || mark.kind == MarkKind::Hang;
      text += std::string("<rect class=\"") + (is_bad ? "f" : "k") + "\" x=\"" +
              fixed(std::clamp(mark.at_s * scale_ - 3, 0.0, 994.0), 1) +
              "\" y=\"0\" width=\"6\" height=\"16\"><title>" +
              html_text(std::string(word_of(mark.kind)) + " at " + in_words(mark.at_s) + ": " +
                        mark.text) +
              "</title></rect>";
    }
    return text;
  }
  std::vector<Span> spans_of(const Rank& rank, const Node& node) const {
    std::vector<Span> spans;
    if (!rank.began_s) return spans;
    const double end = rank.ended_s.value_or(node.end_s);
    const double alive = std::clamp(rank.alive_s.value_or(*rank.began_s), *rank.began_s,
                                    std::max(end, *rank.began_s));
    if (alive > *rank.began_s) spans.push_back({Phase::Start, *rank.began_s, alive});
    spans.push_back({Phase::Running, alive, std::max(end, alive)});
    return spans;
  }
  void begin_section(const std::string& id, const std::string& title) {
    out_ += "<section aria-labelledby=\"" + id + "\"><h2 id=\"" + id + "\">" + title + "</h2>";
  }
  struct Column {
    const char* head;
    bool is_number = false;
  };
  void begin_table(std::initializer_list<Column> columns, const std::string& caption = "") {
    out_ += "<table>";
    if (!caption.empty()) out_ += "<caption>" + caption + "</caption>";
    out_ += "<thead><tr>";
    for (const Column& column : columns)
      out_ += std::string("<th scope=\"col\"") + (column.is_number ? " class=\"r\">" : ">") +
              column.head;
    out_ += "</thead><tbody>";
  }
  void block(std::span<const std::string> lines) {
    out_ += "<pre tabindex=\"0\">";
    for (const std::string& line : lines) out_ += html_text(line) + "\n";
    out_ += "</pre>";
  }
  void tile(const std::string& term, const std::string& value, const std::string& more) {
    out_ += "<div><dt>" + html_text(term) + "</dt><dd>" + html_text(value) + "<small>" +
            html_text(more) + "</small></dd></div>";
  }
  void field(const std::string& term, const std::string& value) {
    if (!value.empty()) out_ += "<dt>" + html_text(term) + "</dt><dd>" + html_text(value) + "</dd>";
  }
  double ledger(Phase phase) const { return job_.ledger.at(agent::index_of(phase)); }

  const Job& job_;
  const agent::Diagnosis& diagnosis_;
  Detail detail_;
  std::set<std::size_t> failed_nodes_;
  std::set<const RankColumn*> columns_;  // the optional ones with a value
  double scale_ = 0;
  std::string out_;
};

void Page::write_head() {
  const bool is_known = job_.outcome == "failed" || job_.outcome == "succeeded";
  out_ += "<header><span class=\"badge " + (is_known ? job_.outcome : std::string("other")) +
          "\">" + html_text(job_.outcome == "unknown" ? "no end recorded" : job_.outcome) +
          "</span><h1>" + html_text(headline_of(job_)) + "</h1>" + why() + "<p class=\"dim\">run " +
          html_text(job_.run_id) + ", began " + html_text(job_.started) +
          "</p><dl class=\"tiles\">";
  tile("Wall time", in_words(job_.wall_s), job_size(job_.world_size, job_.node_count));
  const double running = ledger(Phase::Running);
  tile("Running", percent(running, job_.wall_s),
       in_words(running) + "; the rest is start-up, stopping and waiting");
  const double hours = job_.wall_s * std::max(0, job_.world_size) / 3600;
  const double idle_hours =
      std::max(0.0, job_.wall_s - running) * std::max(0, job_.world_size) / 3600;
  tile("Cost", fixed(hours, hours < 10 ? 2 : 0) + " worker hours",
       fixed(idle_hours, idle_hours < 10 ? 2 : 0) + " of them not running");
  tile("Restarts", std::to_string(job_.restarts),
       in_words(ledger(Phase::Stopping) + ledger(Phase::Restarting)) + " stopping and restarting");
  if (job_.root_cause)
    tile("Failed", "after " + in_words(job_.root_cause->at_s),
         "rank " + std::to_string(job_.root_cause->rank) +
             (job_.restarts > 0 ? ", after restart " + std::to_string(job_.restarts) : ""));
  out_ += "</dl></header>\n";
}

// The cause. Empty: the headline, which says how the rank ended, already shows it.
std::string Page::why() const {
  if (!job_.root_cause || diagnosis_.evidence.empty()) return "";
  std::string text = title_of(diagnosis_.fault) + ": " + diagnosis_.summary;
  if (!diagnosis_.adds_to_headline) {
    const std::string mark = "rank " + std::to_string(job_.root_cause->rank) + ": ";
    text = diagnosis_.evidence.front();
    if (text.starts_with(mark)) text.erase(0, mark.size());
    if (text == to_string(job_.root_cause->status)) return "";
  }
  return "<p class=\"why\">" + html_text(text) + "</p>";
}

void Page::write_cause() {
  if (!job_.root_cause) {
    if (job_.outcome != "succeeded" && !job_.message.empty()) {
      out_ += "<section><h2>Cause</h2><div class=\"cause\"><p>" + html_text(job_.message) + "</p>";
      if (diagnosis_.fault != agent::FaultClass::None) {
        out_ += "<dl>";
        field("Advice", advice_text(diagnosis_));
        out_ += "</dl>";
      }
      out_ += "</div></section>\n";
    }
    return;
  }
  const TimedFailure& cause = *job_.root_cause;
  const std::string ended = to_string(cause.status);
  begin_section("cause", "Root cause");
  out_ += "<div class=\"cause\"><dl>";
  if (diagnosis_.fault != agent::FaultClass::None) {
    field("Diagnosis", title_of(diagnosis_.fault) +
                           (diagnosis_.adds_to_headline ? ": " + diagnosis_.summary : ""));
    field("Advice", advice_text(diagnosis_));
    const std::string last = "rank " + std::to_string(cause.rank) + ": " + ended;
    const char* term = "Evidence";
    for (const std::string& line : diagnosis_.evidence)
      if (line != last) field(std::exchange(term, ""), line);
  }
  field("Rank", std::to_string(cause.rank) + ", local rank " + std::to_string(cause.local_rank) +
                    " on " + place_of(cause) +
                    (cause.pid > 0 ? ", pid " + std::to_string(cause.pid) : ""));
  field("Ended", ended + (cause.out_of_memory ? " (out of memory)" : ""));
  field("When",
        in_words(cause.at_s) + " after the job began, in round " + std::to_string(cause.round));
  field("Message", cause.message);
  field("Log", cause.stderr_file);
  out_ += "</dl>";
  if (!cause.stderr_tail.empty()) {
    out_ += "<p class=\"dim\">Last lines of its stderr</p>";
    block(cause.stderr_tail);
  } else {
    out_ += "<p class=\"dim\">Nothing is known of its last lines.</p>";
  }
  const std::string traceback = agent::shown_traceback(cause.traceback);
  if (!traceback.empty()) {
    out_ += "<details class=\"plain\"><summary>Traceback</summary><pre tabindex=\"0\">";
    for (const std::string_view line : lines_of(traceback)) out_ += html_text(line) + "\n";
    out_ += "</pre></details>";
  }
  if (job_.failures.size() > 1) {
    out_ += "<p>Other failures of that round:</p><ul>";
    for (std::size_t i = 1; i < job_.failures.size(); ++i)
      out_ += "<li>" +
              html_text("rank " + std::to_string(job_.failures[i].rank) + " on " +
                        place_of(job_.failures[i]) + ": " + to_string(job_.failures[i].status)) +
              "</li>";
    out_ += "</ul>";
  }
  out_ += "</div></section>\n";
}

void Page::write_axis() {
  out_ += "<div class=\"row\" aria-hidden=\"true\"><span></span><div class=\"axis\">";
  for (int i = 0; i <= 4; ++i) {
    const std::string shift = i == 0 ? "0" : i == 4 ? "-100%" : "-50%";
    out_ += "<span style=\"left:" + std::to_string(25 * i) + "%;transform:translateX(" + shift +
            ")\">" + html_text(in_words(job_.wall_s * i / 4)) + "</span>";
  }
  out_ += "</div></div>";
}

void Page::write_timeline() {
  begin_section("time", "Timeline, nodes and ranks");
  out_ += "<ul class=\"legend\">";
  for (std::size_t i = 0; i < agent::kPhaseCount; ++i) {
    const auto phase = static_cast<Phase>(i);
    if (job_.ledger.at(i) <= 0) continue;
    out_ += std::string("<li><svg width=\"12\" height=\"12\" aria-hidden=\"true\"><rect class=\"") +
            class_of(phase) + "\" width=\"12\" height=\"12\"/></svg>" + word_of(phase) + "</li>";
  }
  out_ +=
      "<li><svg width=\"6\" height=\"12\" aria-hidden=\"true\"><rect class=\"f\" width=\"6\" "
      "height=\"12\"/></svg>failure</li></ul>";
  write_axis();
  if (job_.nodes.size() <= kNodesInGroup) {
    for (std::size_t i = 0; i < job_.nodes.size(); ++i) write_node(i);
  } else {
    for (std::size_t i = 0; i < job_.nodes.size(); i += kNodesInGroup)
      write_group(i, std::min(i + kNodesInGroup, job_.nodes.size()));
  }
  if (detail_ >= Detail::FailedRanksOnly)
    out_ +=
        "<p class=\"dim\">There are too many ranks for one page: only those that failed are "
        "listed.</p>";
  out_ += "</section>\n";
}

// Nodes [first, last) in one row, with a stripe per node.
void Page::write_group(std::size_t first, std::size_t last) {
  const auto failed = static_cast<std::size_t>(
      std::distance(failed_nodes_.lower_bound(first), failed_nodes_.lower_bound(last)));
  std::size_t ranks = 0;
  for (std::size_t i = first; i < last; ++i) ranks += job_.nodes[i].ranks.size();
  const double height = 28.0 / static_cast<double>(last - first);
  out_ += std::string("<details") + (failed > 0 ? " class=\"bad\" open" : "") +
          "><summary><span class=\"row\"><span class=\"name\"><b>" +
          html_text(name_of(job_.nodes[first]) + " to " + name_of(job_.nodes[last - 1])) +
          "</b><br><span class=\"dim\">" + counted(last - first, "node") + ", " +
          counted(ranks, "rank") + (failed > 0 ? ", failures on " + std::to_string(failed) : "") +
          "</span></span><svg class=\"b g\" viewBox=\"0 0 1000 28\" preserveAspectRatio=\"none\" "
          "role=\"img\" aria-label=\"one stripe for each node\" stroke-width=\"" +
          fixed(1.1 * height, 2) + "\">";  // no gaps
  Lines lines;
  if (detail_ < Detail::FailedGroupsOnly || failed > 0)
    for (std::size_t i = first; i < last; ++i)
      add_lines(lines, job_.nodes[i].spans, (static_cast<double>(i - first) + 0.5) * height);
  out_ += paths(lines) + "</svg></span></summary><div class=\"in\">";
  for (std::size_t i = first; i < last; ++i)
    if (detail_ < Detail::FailedNodesOnly || failed_nodes_.contains(i)) write_node(i);
  out_ += "</div></details>\n";
}

void Page::write_node(std::size_t index) {
  const Node& node = job_.nodes[index];
  const bool is_bad = failed_nodes_.contains(index);
  const bool is_small = job_.nodes.size() <= 2 && node.ranks.size() <= 16;
  const bool is_open = is_small || (is_bad && failed_nodes_.size() <= 2);
  std::string state = counted(node.ranks.size(), "rank");
  std::string spoken = name_of(node) + ": ";
  for (std::size_t i = 0; i < agent::kPhaseCount; ++i)
    if (node.totals.at(i) > 0)
      spoken +=
          std::string(word_of(static_cast<Phase>(i))) + " " + in_words(node.totals.at(i)) + ", ";
  const auto failed = std::count_if(node.ranks.begin(), node.ranks.end(),
                                    [](const Rank& rank) { return rank.has_failed; });
  if (failed > 0) state += ", " + std::to_string(failed) + " failed";
  if (!node.earlier_failures.empty())
    state += ", " + std::to_string(node.earlier_failures.size()) + " failed before";
  if (node.is_running) {
    state += ", running";
  } else if (!node.has_ended) {
    state += ", no end recorded";
  }
  out_ += std::string("<details") + (is_bad ? " class=\"bad\"" : "") + (is_open ? " open" : "") +
          "><summary><span class=\"row\"><span class=\"name\"><b>" + html_text(name_of(node)) +
          "</b> <span class=\"dim\">" + html_text(state) +
          "</span></span><svg class=\"b\" viewBox=\"0 0 1000 16\" preserveAspectRatio=\"none\" "
          "stroke-width=\"16\" role=\"img\" aria-label=\"" +
          html_text(spoken) + "\">" + bars(node.spans, 16) + marks_of(index) +
          "</svg></span></summary><div class=\"in\">";
  write_ranks(node, detail_ < Detail::FailedRanksOnly);
  out_ += "</div></details>\n";
}

void Page::write_ranks(const Node& node, bool is_shown_whole) {
  std::string directory;
  for (const Rank& rank : node.ranks)
    if (!rank.log.empty()) directory = rank.log.substr(0, rank.log.find("/attempt_"));
  out_ += "<p class=\"dim\">agent pid " + std::to_string(node.agent_pid) +
          (directory.empty() ? "; no log files"
                             : "; logs in <code>" + html_text(directory) + "</code>") +
          "</p>";
  if (node.ranks.empty() && node.earlier_failures.empty()) return;
  const auto write_heads = [this](const auto& columns) {
    for (const RankColumn& column : columns)
      if (has_column(column))
        out_ += (column.is_number ? "<th class=r>" : "<th>") + std::string(column.head);
  };
  out_ += "<table class=ranks><thead><tr><th>Rank<th>Time";
  write_heads(kColumnsBeforePid);
  out_ += "<th>Pid<th>End";
  write_heads(kColumnsAfterEnd);
  out_ += "</thead><tbody>";
  for (const Rank& rank : node.ranks)
    if (is_shown_whole || rank.has_failed) write_rank(node, rank);
  std::size_t shown = 0;
  for (const Rank& rank : node.earlier_failures)
    if (++shown <= 32) write_rank(node, rank);
  out_ += "</tbody></table>";
}

void Page::write_rank(const Node& node, const Rank& rank) {
  const auto write_cells = [this, &rank](const auto& columns) {
    for (const RankColumn& column : columns)
      if (has_column(column))
        out_ += (column.is_number ? "<td class=r>" : "<td>") + html_text(column.text(rank));
  };
  out_ += rank.has_failed ? "<tr class=\"bad\"><td>" : "<tr><td>";
  out_ += std::to_string(rank.rank);
  const bool is_of_earlier_round = !node.ranks.empty() && rank.round != node.ranks.front().round;
  if (is_of_earlier_round)
    out_ += "<span class=dim> (round " + std::to_string(rank.round) + ")</span>";
  out_ += "<td class=w>";
  if (detail_ == Detail::All || rank.has_failed)
    out_ +=
        "<svg class=b viewBox=\"0 0 1000 9\" preserveAspectRatio=none stroke-width=9 "
        "aria-hidden=true>" +
        bars(spans_of(rank, node), 9) + "</svg>";
  std::string end = rank.ended.empty() ? "no end recorded" : rank.ended;
  if (rank.exit_code && *rank.exit_code == 0) end = "0";
  if (rank.ended.empty() && node.is_running) end = "running";
  if (rank.stopped_by_drun && !rank.has_failed) end = "stopped by drun, " + short_end(end);
  write_cells(kColumnsBeforePid);
  out_ += "<td>" + std::to_string(rank.pid) + "<td>" + html_text(end);
  write_cells(kColumnsAfterEnd);
  out_ += "\n";
}

void Page::write_rounds() {
  if (job_.rounds.empty()) return;
  begin_section("rounds", "Rounds and restarts");
  begin_table({{"Round"}, {"Began", true}, {"Lasted", true}, {"World"}, {"Why it ended"}},
              "Each round starts all workers anew");
  for (std::size_t i = 0; i < job_.rounds.size(); ++i) {
    if (i >= kMostRoundRows / 2 && i + kMostRoundRows / 2 < job_.rounds.size()) continue;
    const timeline::Round& round = job_.rounds[i];
    std::string why = round.reason;
    if (why.empty())
      why = round.has_succeeded ? "all workers returned 0"
            : round.has_ended   ? "stopped"
                                : "no end recorded";
    out_ += std::string("<tr") + (round.failure ? " class=\"bad\"" : "") + "><td>" +
            std::to_string(round.round) + (round.is_preflight ? " (preflight)" : "") +
            "<td class=\"r\">" + in_words(round.begin_s) + "<td class=\"r\">" +
            in_words(round.end_s - round.begin_s) + "<td>" +
            job_size(round.world_size, round.node_count) + "<td>" + html_text(why);
    const bool has_more =
        round.failure && !round.failure->stderr_tail.empty() && job_.rounds.size() > 1 && i < 32;
    if (has_more) {
      out_ += "<details class=\"plain\"><summary>its last lines</summary>";
      block(round.failure->stderr_tail);
      out_ += "</details>";
    }
    out_ += "\n";
  }
  out_ += "</tbody></table>";
  if (job_.rounds.size() > kMostRoundRows)
    out_ += "<p class=\"dim\">" + std::to_string(job_.rounds.size() - kMostRoundRows) +
            " rounds are not shown.</p>";
  out_ += "</section>\n";
}

void Page::write_ledger() {
  begin_section("ledger", "Where the time went");
  begin_table({{"Phase"}, {"Time", true}, {"Share", true}, {""}, {"Longest"}},
              "Mean of all nodes; the phases sum to the wall time");
  double sum = 0;
  for (std::size_t i = 0; i < agent::kPhaseCount; ++i) {
    const double seconds = job_.ledger.at(i);
    if (seconds <= 0) continue;
    sum += seconds;
    const auto phase = static_cast<Phase>(i);
    const timeline::Slowest& slowest = job_.slowest.at(i);
    out_ += std::string("<tr><td>") + word_of(phase) + "<br><span class=\"dim\">" +
            meaning_of(phase) + "</span><td class=\"r\">" + in_words(seconds) + "<td class=\"r\">" +
            percent(seconds, job_.wall_s) + "<td class=\"w\"><svg class=\"b\" viewBox=\"0 0 1000 " +
            "9\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"" +
            class_of(phase) + "\" width=\"" + fixed(seconds * scale_, 1) +
            "\" height=\"9\"/></svg><td>" +
            (slowest.who.empty() ? "" : html_text(in_words(slowest.seconds) + ", " + slowest.who)) +
            "\n";
  }
  out_ += "<tr><th scope=\"row\">Sum<td class=\"r\">" + in_words(sum) + "<td class=\"r\">" +
          percent(sum, job_.wall_s) + "<td><td></tbody></table></section>\n";
}

void Page::write_slow() {
  std::vector<std::string> lines;
  for (const timeline::Slow& slow : job_.slow) lines.push_back(words_of(slow));
  write_list("slow", "Slow ranks and nodes", lines);
}

void Page::write_marks() {
  if (job_.marks.empty()) return;
  begin_section("marks", "Incidents");
  begin_table({{"After", true}, {"What"}, {"Seen by"}, {"Details"}});
  std::size_t shown = 0;
  for (const Mark& mark : job_.marks) {
    if (++shown > kMostMarkRows) break;
    out_ += "<tr><td class=\"r\">" + in_words(mark.at_s) + "<td>" + word_of(mark.kind) + "<td>" +
            html_text(name_of(job_.nodes.at(mark.node))) + "<td>" + html_text(mark.text) + "\n";
  }
  out_ += "</tbody></table>";
  if (job_.marks.size() > kMostMarkRows)
    out_ +=
        "<p class=\"dim\">and " + std::to_string(job_.marks.size() - kMostMarkRows) + " more</p>";
  out_ += "</section>\n";
}

void Page::write_setting() {
  begin_section("setting", "Command, versions, environment");
  out_ += "<dl class=\"meta\">";
  field("Command", shell_quoted(agent::redacted_command(job_.command)));
  field("drun", job_.drun_version);
  field("Kernel", job_.kernel);
  out_ += "</dl>";
  if (!job_.environment.empty()) {
    out_ += "<details class=\"plain\"><summary>Environment of the first node (" +
            counted(job_.environment.size(), "variable") + ")</summary><div class=\"in\">";
    begin_table({{"Name"}, {"Value"}});
    for (const auto& [name, value] : job_.environment) {
      const std::string shown = agent::is_secret_name(name) ? std::string(agent::kRedacted)
                                                            : agent::without_secrets(value);
      out_ +=
          "<tr><td><code>" + html_text(name) + "</code><td><code>" + html_text(shown) + "</code>\n";
    }
    out_ += "</tbody></table></div></details>";
  }
  out_ += "</section>\n";
}

void Page::write_list(const std::string& id, const std::string& title,
                      const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  begin_section(id, title);
  out_ += "<ul class=\"notes\">";
  for (const std::string& line : lines) out_ += "<li>" + html_text(line) + "</li>";
  out_ += "</ul></section>\n";
}

}  // namespace

std::string html_text(std::string_view text) { return xml_text(printable(text)); }

std::string words_of(const timeline::Slow& slow) {
  const std::string time = in_words(slow.seconds);
  const std::string usual = "; the median is " + in_words(slow.median_s);
  switch (slow.kind) {
    case timeline::SlowKind::Arrival:
      return slow.who + " began " + time + " after the first node" + usual;
    case timeline::SlowKind::Start:
      return slow.who + " printed its first line after " + time + usual;
    case timeline::SlowKind::Speed:
      return slow.who;
    case timeline::SlowKind::Processor:
      break;
  }
  return slow.who + " used " + time + " of processor time" + usual;
}

std::string headline_of(const Job& job) {
  if (job.outcome == "succeeded") return "Job succeeded in " + in_words(job.wall_s);
  if (job.outcome == "running") return "Job is running for " + in_words(job.wall_s);
  const std::string what = job.outcome == "failed"        ? "Job failed"
                           : job.outcome == "interrupted" ? "Job was interrupted"
                           : job.outcome == "preempted"   ? "Job was preempted"
                           : job.outcome == "node_lost"   ? "Job ended: a node was lost"
                           : job.outcome == "not_run"     ? "Job did not run"
                                                          : "No end of the job is recorded";
  if (job.root_cause && (job.outcome == "failed" || job.outcome == "unknown"))
    return what + ": rank " + std::to_string(job.root_cause->rank) + " on " +
           place_of(*job.root_cause) + " " + verb_phrase(*job.root_cause);
  return what + (job.message.empty() ? "" : ": " + job.message);
}

std::string report_html(const Job& job) {
  const agent::Diagnosis diagnosis = diagnosis_of(job);
  std::string page;
  for (const Detail detail : {Detail::All, Detail::NoRankBars, Detail::FailedRanksOnly,
                              Detail::FailedNodesOnly, Detail::FailedGroupsOnly}) {
    page = Page(job, diagnosis, detail).make();
    if (page.size() <= kMostHtmlBytes) break;
  }
  return page;
}

}  // namespace drun

#include "launcher/report/report.h"
#include "rendezvous/protocol/membership_text.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "agent/diagnosis/error_text.h"
#include "agent/wall_time.h"
#include "launcher/base/words.h"
#include "launcher/report/timeline_views.h"
#include "rendezvous/base/result.h"

namespace drun {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

constexpr std::pair<char, std::string_view> kXmlEscapes[] = {{'&', "&amp;"},  {'<', "&lt;"},
                                                             {'>', "&gt;"},   {'"', "&quot;"},
                                                             {'\'', "&#39;"}, {'\r', "&#13;"}};

std::string as_utf8(std::string_view text) {
  using nlohmann::json;
  return json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace));
}

// Bytes of the character that UTF-8 text begins with if XML 1.0 does not allow it (production 2) or
// it is another control character; otherwise 0.
std::size_t forbidden_size(std::string_view text) {
  if (text.starts_with('\n') || text.starts_with('\r')) return 0;
  const bool is_noncharacter = text.starts_with("\xef\xbf\xbe") || text.starts_with("\xef\xbf\xbf");
  return is_noncharacter ? 3 : control_size(text);
}

std::string seconds(std::chrono::milliseconds duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f",
                static_cast<double>(std::max<std::int64_t>(0, duration.count())) / 1000);
  return text;
}

std::string attribute(const char* name, std::string_view value) {
  return std::string(" ") + name + "=\"" + xml_text(value) + "\"";
}

std::string property(const char* name, std::string_view value) {
  return std::string("      <property") + attribute("name", name) + attribute("value", value) +
         "/>\n";
}

// The summary line of a failure.
std::string headline(const Failure& failure) {
  return "rank " + std::to_string(failure.rank) + " on " +
         rendezvous::node_text(failure.node_rank, failure.host) + ": " + how_it_ended(failure);
}

std::string details(const Failure& failure) {
  std::string text = headline(failure) + "\n";
  text += "pid " + std::to_string(failure.pid) + ", round " + std::to_string(failure.round) + ", " +
          utc_time(failure.time) + "\n";
  if (!failure.message.empty()) text += "message: " + failure.message + "\n";
  const std::string traceback = agent::shown_traceback(failure.traceback);
  if (!traceback.empty() && traceback != failure.message) text += traceback + "\n";
  for (const std::string& line : failure.stderr_tail) text += "stderr | " + line + "\n";
  return text;
}

std::string element(const char* name, const char* type, const std::string& message,
                    const std::string& text) {
  return std::string("      <") + name + attribute("message", message) + attribute("type", type) +
         ">" + xml_text(text) + "</" + name + ">\n";
}

std::string diagnosis_lines(const agent::Diagnosis& diagnosis) {
  if (diagnosis.fault == agent::FaultClass::None) return "";
  std::string text = "cause: " + title_of(diagnosis.fault) + ": " + diagnosis.summary +
                     "\nadvice: " + advice_text(diagnosis) + "\n";
  for (const std::string& line : diagnosis.evidence) text += "evidence: " + line + "\n";
  return text;
}

// The content of the test case "job"; empty if the job succeeded.
std::string job_element(const Outcome& outcome, const std::string& text) {
  return std::visit(
      Overloaded{
          [](const Succeeded&) { return std::string(); },
          [&](const WorkersFailed& failed) {
            if (failed.failures.empty())
              return element("failure", "failed", "job failed; no worker reported a cause", text);
            const Failure& root = failed.failures.front();
            return element("failure", "failed", headline(root),
                           diagnosis_lines(agent::diagnose(outcome)) + details(root));
          },
          [&](const Interrupted& interrupted) {
            return element("error", "interrupted",
                           "the job was ended by " + signal_name(interrupted.signal), text);
          },
          [&](const NodeLost& lost) {
            return element("error", "node_lost",
                           rendezvous::node_text(lost.node_rank, lost.host) + " was lost" +
                               (lost.reason.empty() ? "" : ": " + lost.reason),
                           text);
          },
          [&](const NotRun& not_run) {
            return element("error", "not_run", not_run.error.message, text);
          },
          [&](const Preempted& preempted) {
            return element("error", "preempted", "the job was preempted: " + preempted.reason,
                           text);
          },
      },
      outcome.ending);
}

std::string test_case(const std::string& name, const std::string& run_id,
                      std::chrono::milliseconds duration, const std::string& content) {
  const std::string head = "    <testcase" + attribute("classname", "drun." + run_id) +
                           attribute("name", name) + attribute("time", seconds(duration));
  return content.empty() ? head + "/>\n" : head + ">\n" + content + "    </testcase>\n";
}

std::string faults_of(const Outcome& outcome) {
  std::string text;
  for (const InjectedFault& fault : outcome.faults)
    text += property("fault", fault.fault +
                                  (fault.time ? " at " + utc_time(*fault.time) : std::string()) +
                                  ": " + fault.followed);
  return text;
}

}  // namespace

std::string xml_text(std::string_view text) {
  const std::string whole = as_utf8(text);
  std::string escaped;
  escaped.reserve(whole.size());
  for (std::string_view rest = whole; !rest.empty();) {
    const std::size_t forbidden = forbidden_size(rest);
    const auto* const escape =
        std::find_if(std::begin(kXmlEscapes), std::end(kXmlEscapes),
                     [&rest](const auto& each) { return each.first == rest.front(); });
    if (forbidden > 0)
      escaped += kReplacement;
    else if (escape != std::end(kXmlEscapes))
      escaped += escape->second;
    else
      escaped += rest.front();
    rest.remove_prefix(std::max<std::size_t>(forbidden, 1));
  }
  return escaped;
}

std::string report_for_file(std::string_view path, const Outcome& outcome, int exit_code,
                            const std::vector<WorkerPlacement>& placements,
                            const ReportStyle& style,
                            const std::optional<agent::PhaseTimes>& phase_times) {
  if (!path.ends_with(".xml"))
    return report_json(outcome, exit_code, placements, phase_times, style.timeouts);
  ReportStyle plain = style;
  plain.has_color = false;
  plain.columns = 100;
  return report_junit(outcome, exit_code, report_text(outcome, plain));
}

std::string report_junit(const Outcome& outcome, int exit_code, const std::string& text) {
  const bool has_succeeded = std::holds_alternative<Succeeded>(outcome.ending);
  const auto* failed = std::get_if<WorkersFailed>(&outcome.ending);
  std::map<int, const Failure*> failures;
  if (failed != nullptr)
    for (const Failure& failure : failed->failures) failures.emplace(failure.rank, &failure);
  const int ranks = std::clamp(outcome.world_size, 0, kMostRankCases);
  const bool is_error = !has_succeeded && failed == nullptr;
  int rank_failures = 0;
  std::string cases = test_case(
      "job", outcome.run_id, outcome.duration,
      job_element(outcome, text) +
          (text.empty() || is_error ? std::string()
                                    : "      <system-out>" + xml_text(text) + "</system-out>\n"));
  for (int rank = 0; rank < ranks; ++rank) {
    std::string content;
    if (const auto found = failures.find(rank); found != failures.end()) {
      ++rank_failures;
      content = element("failure", "failed", headline(*found->second), details(*found->second));
    } else if (!has_succeeded) {
      content = "      <skipped" + attribute("message", "stopped when the job ended") + "/>\n";
    }
    cases += test_case("rank " + std::to_string(rank), outcome.run_id, outcome.duration, content);
  }
  const int all_failures = rank_failures + (failed != nullptr ? 1 : 0);
  const std::string counts =
      attribute("tests", std::to_string(ranks + 1)) +
      attribute("failures", std::to_string(all_failures)) +
      attribute("errors", is_error ? "1" : "0") +
      attribute("skipped", std::to_string(has_succeeded ? 0 : ranks - rank_failures)) +
      attribute("time", seconds(outcome.duration));
  std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites" +
                    attribute("name", "drun") + counts + ">\n  <testsuite" +
                    attribute("name", "drun " + outcome.run_id) + counts + ">\n    <properties>\n";
  xml += property("exit_code", std::to_string(exit_code));
  xml += property("nodes", std::to_string(outcome.node_count));
  xml += property("workers", std::to_string(outcome.world_size));
  xml += property("restarts", std::to_string(outcome.restarts));
  if (const agent::Diagnosis diagnosis = agent::diagnose(outcome);
      diagnosis.fault != agent::FaultClass::None) {
    xml += property("diagnosis", agent::word_of(diagnosis.fault));
    xml += property("advice", advice_text(diagnosis));
  }
  if (outcome.world_size > ranks)
    xml += property("ranks_not_listed", std::to_string(outcome.world_size - ranks));
  return xml + faults_of(outcome) + "    </properties>\n" + cases +
         "  </testsuite>\n</testsuites>\n";
}

}  // namespace drun

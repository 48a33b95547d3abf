#include "launcher/report/report.h"

#include <algorithm>
#include <cerrno>
#include <vector>

#include "agent/diagnosis/error_text.h"
#include "agent/wall_time.h"
#include "launcher/base/text.h"
#include "launcher/base/words.h"
#include "launcher/cli/help.h"
#include "launcher/report/timeline_views.h"
#include "rendezvous/base/bytes.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/rank_ranges.h"
#include "rendezvous/protocol/membership_text.h"

namespace drun {
namespace {

constexpr std::size_t kMostOthers = 16;  // the JSON report has all of them
constexpr std::size_t kMostFaultsShown = 32;
constexpr std::size_t kLabelBytes = 11;
// Of an error on the console; the JSON report has it whole.
constexpr std::size_t kMostErrorLines = 8;
constexpr std::size_t kMostErrorBytes = 240;

std::string place(std::optional<int> node_rank, const std::string& host) {
  if (!node_rank) return "host " + printable(host);
  return rendezvous::node_text(*node_rank, printable(host));
}

// ", role server,"; empty for the default role.
std::string role_text(const Failure& failure) {
  const bool is_named = !failure.role.empty() && failure.role != "default";
  return is_named ? ", role " + printable(failure.role) + "," : "";
}

std::vector<std::string> printable_lines(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  std::vector<std::string> lines;
  for (const std::string_view line : lines_of(text)) lines.push_back(printable(line));
  return lines;
}

class Writer {
 public:
  explicit Writer(const ReportStyle& style) : style_(style) {}

  // Writes "drun: ...", wrapped to the terminal width if known.
  void headline(const std::string& text) {
    const std::string whole = style_.invoked_as + ": " + text;
    const auto columns = static_cast<std::size_t>(std::clamp(style_.columns, 40, 200));
    const std::vector<std::string> lines =
        style_.columns == 0 ? std::vector{whole} : wrapped(whole, columns);
    for (const std::string& each : lines) text_ += painted("1;31", each, style_.has_color) + "\n";
  }
  void line(const std::string& text) { text_ += text + "\n"; }
  // Writes a label and its lines in one column; nothing if there are no lines.
  void field(std::string label, const std::vector<std::string>& lines) {
    for (const std::string& each : lines) {
      label.resize(kLabelBytes, ' ');
      text_ += "  " + label + each + "\n";
      label.clear();
    }
  }
  std::string take() { return std::move(text_); }
  const ReportStyle& style() const { return style_; }

 private:
  const ReportStyle& style_;
  std::string text_;
};

std::string after(const Outcome& outcome) {
  return outcome.duration.count() > 0 ? " after " + in_words(outcome.duration) : "";
}

std::string rank_text(const Failure& failure) {
  return "rank " + std::to_string(failure.rank) + " on " + place(failure.node_rank, failure.host) +
         role_text(failure);
}

void write_stderr(Writer& writer, const Failure& failure) {
  if (failure.stderr_tail.empty()) return;
  writer.line("last lines of stderr from " + rank_text(failure) + ":");
  for (const std::string& line : failure.stderr_tail) writer.line("| " + printable(line));
  writer.line("");
}

// Cut between sentences or else between words.
std::string cut_line(const std::string& text) {
  if (text.size() <= kMostErrorBytes) return text;
  std::string_view part = rendezvous::cut_text(text, kMostErrorBytes - 4);
  std::size_t end = part.rfind(". ");
  if (end == part.npos || end < part.size() / 2) end = part.rfind(' ') - 1;
  if (end < part.size() && end > part.size() / 2) part = part.substr(0, end + 1);
  return std::string(part) + " ...";
}

std::vector<std::string> error_field(const Failure& failure) {
  std::vector<std::string> lines;
  const auto* const not_started = std::get_if<NotStarted>(&failure.status);
  if (not_started != nullptr && not_started->error_number == ENOENT && failure.message.empty())
    return {"the program, or the interpreter in its first line, does not exist on that node"};
  for (const std::string& line : agent::error_lines(failure)) {
    if (lines.size() == kMostErrorLines) {
      lines.emplace_back("...");
      break;
    }
    lines.push_back(cut_line(printable(line)));
  }
  return lines;
}

std::string worker_text(const Failure& failure, const Outcome& outcome,
                        std::chrono::seconds utc_offset) {
  std::string text = failure.program.empty() ? "" : printable(failure.program) + ", ";
  if (failure.pid > 0) text += "pid " + std::to_string(failure.pid) + ", ";
  text += "local rank " + std::to_string(failure.local_rank) + ", failed at " +
          date_and_time(failure.time, utc_offset);
  if (outcome.restarts > 0) text += " in round " + std::to_string(failure.round);
  return text;
}

// The first failure of a rank that the diagnosis blames; the first of all if it blames none.
const Failure& blamed(const agent::Diagnosis& diagnosis, const std::vector<Failure>& failures) {
  for (const Failure& failure : failures)
    if (contains(diagnosis.ranks, failure.rank)) return failure;
  return failures.front();
}

// None if the headline says it all. If a rank that failed later crashed, its error, too: the
// summaries of other faults contain it.
void write_diagnosis(Writer& writer, const agent::Diagnosis& diagnosis,
                     const std::vector<Failure>& failures) {
  if (!diagnosis.adds_to_headline) return;
  const Failure& cause = blamed(diagnosis, failures);
  std::vector<std::string> lines{printable(diagnosis.summary)};
  if (diagnosis.fault == agent::FaultClass::Crash && &cause != &failures.front())
    for (std::string& line : error_field(cause)) lines.push_back(std::move(line));
  lines.push_back(printable(advice_text(diagnosis)));
  writer.field("cause", lines);
}

void write_root_cause(Writer& writer, const Failure& failure, const Outcome& outcome) {
  writer.field("error", error_field(failure));
  if (std::holds_alternative<Hung>(failure.status))
    writer.field("stacks", {"of all ranks: in the log above and in the --report file"});
  else if (failure.traceback != failure.message)
    writer.field("traceback", printable_lines(agent::shown_traceback(failure.traceback)));
  writer.field("worker", {worker_text(failure, outcome, writer.style().utc_offset)});
  std::vector<std::string> files;
  for (const std::string& file : {failure.error_file, failure.stderr_file})
    if (!file.empty()) files.push_back(printable(file));
  writer.field("files", files);
}

void write_others(Writer& writer, const std::vector<Failure>& failures, std::size_t left_out) {
  std::vector<std::string> lines;
  const std::size_t shown = std::min(failures.size(), 1 + kMostOthers);
  for (std::size_t i = 1; i < shown; ++i) {
    const Failure& each = failures[i];
    lines.push_back(time_of_day(each.time, writer.style().utc_offset) + "  " + rank_text(each) +
                    " " + verb_phrase(each));
    const std::vector<std::string> message = printable_lines(each.message);
    if (!message.empty()) lines.push_back("  " + cut_line(message.front()));
  }
  const std::size_t more = failures.size() - shown + left_out;
  if (more > 0) lines.push_back("and " + std::to_string(more) + " more");
  writer.field("others", lines);
}

void write_slow(Writer& writer, const Outcome& outcome) {
  std::vector<std::string> lines;
  for (const SlowRank& slow : outcome.slow) lines.push_back(printable(text_of(slow)));
  writer.field("slow", lines);
}

void write_timeouts(Writer& writer) {
  std::vector<std::string> lines;
  for (const agent::ReportedTimeout& timeout : writer.style().timeouts)
    lines.push_back(ranks_text(timeout.ranks) + " reported a timeout of " +
                    (timeout.call.empty() ? "a collective" : printable(timeout.call)) +
                    (count_of(timeout.ranks) > 1 ? ", the first at " : " at ") +
                    time_of_day(timeout.first, writer.style().utc_offset));
  writer.field("timeouts", lines);
}

void write_left_out(Writer& writer, const Outcome& outcome) {
  std::vector<std::string> lines;
  for (const LeftOut& node : outcome.left_out)
    lines.push_back(place(node.node_rank, node.host) + " after round " +
                    std::to_string(node.round) + ": " + printable(node.reason));
  writer.field("excluded", lines);
}

std::string fault_text(const InjectedFault& fault, std::chrono::seconds utc_offset) {
  const std::string head = printable(fault.fault);
  const std::string tail = ": " + printable(fault.followed);
  if (!fault.time) return head + tail;
  return time_of_day(*fault.time, utc_offset) + " " + head + ", " +
         (fault.rank ? "rank " + std::to_string(*fault.rank) + " on " : "") +
         place(fault.node_rank, fault.host) + ", round " + std::to_string(fault.round) + tail;
}

void write_faults(Writer& writer, const Outcome& outcome) {
  std::vector<std::string> lines;
  const std::size_t shown = std::min(outcome.faults.size(), kMostFaultsShown);
  for (std::size_t i = 0; i < shown; ++i)
    lines.push_back(fault_text(outcome.faults[i], writer.style().utc_offset));
  if (outcome.faults.size() > shown)
    lines.push_back("and " + std::to_string(outcome.faults.size() - shown) + " more");
  writer.field("injected", lines);
}

void write_incidents(Writer& writer, const Outcome& outcome) {
  write_slow(writer, outcome);
  write_faults(writer, outcome);
}

// The fault that caused the loss of the node; empty if there is none.
std::string injected_text(const NodeLost& lost, const Outcome& outcome) {
  for (const InjectedFault& fault : outcome.faults) {
    if (fault.time && !fault.rank && fault.node_rank == lost.node_rank)
      return "; injected by --inject (" + printable(fault.fault) + ")";
  }
  return "";
}

void write_foot(Writer& writer, const Outcome& outcome) {
  const ReportStyle& style = writer.style();
  std::string text = job_size(outcome.world_size, outcome.node_count) + ", run " +
                     printable(short_run_id(outcome.run_id));
  if (outcome.restarts > outcome.max_restarts) {  // restarts are counted per time window
    text += ", " + counted(outcome.restarts, "restart");
  } else if (outcome.max_restarts > 0) {
    text += ", " + std::to_string(outcome.restarts) + " of " +
            counted(outcome.max_restarts, "restart") + " used";
  }
  writer.field("job", {text});
  if (!style.log_directory.empty()) writer.field("logs", {printable(style.log_directory)});
  if (!style.report_file.empty()) writer.field("report", {printable(style.report_file)});
}

void write_failed(Writer& writer, const WorkersFailed& failed, const Outcome& outcome) {
  if (failed.failures.empty()) {
    writer.headline("job failed; no worker reported a cause");
    write_faults(writer, outcome);
    return write_foot(writer, outcome);
  }
  const Failure& root = failed.failures.front();
  const agent::Diagnosis diagnosis = agent::diagnose(outcome);
  writer.line("");  // separates the report from the workers' output
  if (!writer.style().has_shown_stderr) write_stderr(writer, blamed(diagnosis, failed.failures));
  writer.headline("job failed" + after(outcome) + ": " + rank_text(root) + " " + verb_phrase(root));
  write_diagnosis(writer, diagnosis, failed.failures);
  write_root_cause(writer, root, outcome);
  write_others(writer, failed.failures, outcome.failures_left_out);
  write_left_out(writer, outcome);
  write_incidents(writer, outcome);
  write_foot(writer, outcome);
}

}  // namespace

std::string report_text(const Outcome& outcome, const ReportStyle& style) {
  Writer writer(style);
  std::visit(
      Overloaded{
          [&](const Succeeded&) { write_incidents(writer, outcome); },
          [&](const WorkersFailed& failed) { write_failed(writer, failed, outcome); },
          [&](const Interrupted& interrupted) {
            writer.headline("job stopped by " + signal_name(interrupted.signal) + " on " +
                            place(interrupted.node_rank, interrupted.host) + after(outcome));
            write_timeouts(writer);
            write_incidents(writer, outcome);
          },
          [&](const NodeLost& lost) {
            writer.headline("job failed" + after(outcome) + ": lost " +
                            place(lost.node_rank, lost.host) +
                            (lost.is_coordinator ? ", the coordinator" : "") +
                            (lost.reason.empty() ? "" : ": " + printable(lost.reason)) +
                            injected_text(lost, outcome));
            writer.line("  stopped this node's workers; the state of the lost node's is unknown");
            write_incidents(writer, outcome);
          },
          [&](const NotRun& not_run) { writer.line(error_text(style.invoked_as, not_run.error)); },
          [&](const Preempted& preempted) {
            writer.headline("job preempted" + after(outcome) + ": " + printable(preempted.reason));
            write_timeouts(writer);
            write_incidents(writer, outcome);
          },
      },
      outcome.ending);
  std::string text = writer.take();
  if (text.ends_with("\n\n")) text.pop_back();
  return text;
}

std::string error_text(const std::string& invoked_as, const Error& error) {
  std::string text = invoked_as + ": " + printable(error.message) + "\n";
  if (error.code == ErrorCode::Usage) text += "try " + invoked_as + " --help\n";
  return text;
}

// --- Exit codes

namespace {

int own_code(const Error& error) {
  switch (error.code) {
    case ErrorCode::Usage:
      return kUsage;
    case ErrorCode::Unreachable:
    case ErrorCode::Timeout:
      return kRendezvousTimeout;
    case ErrorCode::Closed:
    case ErrorCode::Refused:
      return kRendezvousRefused;
    case ErrorCode::Spawn:
      return kNotExecutable;
    case ErrorCode::WorkerFailed:
      return 1;
    case ErrorCode::System:
      return kSystemError;
  }
  return kSystemError;
}

int own_code(const Outcome& outcome) {
  return std::visit(
      Overloaded{
          [](const Succeeded&) { return 0; },
          [](const WorkersFailed& failed) {
            const int code =
                failed.failures.empty() ? kSystemError : exit_code(failed.failures[0].status);
            return code == 0 ? kSystemError : code;  // 0 only if success was confirmed
          },
          [](const Interrupted& interrupted) { return 128 + interrupted.signal; },
          [](const NodeLost&) { return kNodeLost; },
          [](const NotRun& not_run) { return own_code(not_run.error); },
          [](const Preempted&) { return kPreempted; },
      },
      outcome.ending);
}

}  // namespace

int styled_code(int code, ExitCodeStyle style) {
  return style == ExitCodeStyle::Torchrun && code != 0 && code != kUsage ? 1 : code;
}

int exit_code(const Error& error, ExitCodeStyle style) {
  return styled_code(own_code(error), style);
}

int exit_code(const Outcome& outcome, ExitCodeStyle style) {
  const bool is_worker = std::holds_alternative<WorkersFailed>(outcome.ending);
  const int code = own_code(outcome);
  return is_worker && style == ExitCodeStyle::Torchrun ? 1 : styled_code(code, style);
}

}  // namespace drun

#include "launcher/report/report.h"

#include <algorithm>
#include <vector>

#include "agent/wall_time.h"
#include "launcher/base/words.h"
#include "launcher/cli/help.h"
#include "rendezvous/base/result.h"

namespace drun {
namespace {

constexpr std::size_t kMostOthers = 16;  // of them more are in the JSON
constexpr std::size_t kLabelBytes = 11;

std::string place(std::optional<int> node_rank, const std::string& host) {
  if (!node_rank) return "the node on " + printable(host);
  return "node " + std::to_string(*node_rank) + (host.empty() ? "" : " (" + printable(host) + ")");
}

// ", role server"; nothing where nobody has named one.
std::string role_text(const Failure& failure) {
  const bool is_named = !failure.role.empty() && failure.role != "default";
  return is_named ? ", role " + printable(failure.role) : "";
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (text.ends_with('\n')) text.remove_suffix(1);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(printable(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

class Writer {
 public:
  explicit Writer(const ReportStyle& style) : style_(style) {}

  // "drun: ...", wrapped to the terminal.
  void headline(const std::string& text) {
    const auto columns = static_cast<std::size_t>(std::clamp(style_.columns, 40, 200));
    for (const std::string& line : wrapped(style_.invoked_as + ": " + text, columns))
      text_ += painted("1;31", line) + "\n";
  }
  void section(const std::string& title) { text_ += "\n" + painted("1", title) + "\n"; }
  void line(const std::string& text) { text_ += text + "\n"; }
  // A label, then lines one below the other. Nothing when there are none.
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
  std::string painted(const char* colour, const std::string& text) const {
    return style_.has_colour ? "\x1b[" + std::string(colour) + "m" + text + "\x1b[0m" : text;
  }

  const ReportStyle& style_;
  std::string text_;
};

void write_stderr(Writer& writer, const Failure& failure) {
  std::vector<std::string> lines;
  for (const std::string& line : failure.stderr_tail) lines.push_back("| " + printable(line));
  writer.field("stderr", lines);
}

void write_root_cause(Writer& writer, const Failure& failure, const Outcome& outcome) {
  const std::string round =
      outcome.restarts > 0 ? ", round " + std::to_string(failure.round) : std::string();
  writer.section("Root cause");
  writer.field(
      "rank", {std::to_string(failure.rank) + ", local rank " + std::to_string(failure.local_rank) +
               " on " + place(failure.node_rank, failure.host) + role_text(failure) +
               (failure.pid > 0 ? ", pid " + std::to_string(failure.pid) : "")});
  writer.field("ended", {how_it_ended(failure)});
  writer.field("time", {date_and_time(failure.time, writer.style().utc_offset) + round});
  if (!failure.program.empty()) writer.field("program", {printable(failure.program)});
  writer.field("message", lines_of(failure.message));
  if (std::holds_alternative<Hung>(failure.status))
    writer.field("stacks", {"of all ranks: in drun's log above, and in --report's traceback"});
  else if (failure.traceback != failure.message)
    writer.field("traceback", lines_of(failure.traceback));
  write_stderr(writer, failure);
  std::vector<std::string> files;
  for (const std::string& file : {failure.error_file, failure.stderr_file})
    if (!file.empty()) files.push_back(printable(file));
  writer.field("files", files);
}

void write_others(Writer& writer, const std::vector<Failure>& failures, std::size_t left_out) {
  if (failures.size() < 2 && left_out == 0) return;
  writer.section("Other failures, in order");
  const std::size_t shown = std::min(failures.size(), 1 + kMostOthers);
  for (std::size_t i = 1; i < shown; ++i) {
    const Failure& each = failures[i];
    writer.line("  " + time_of_day(each.time, writer.style().utc_offset) + "  rank " +
                std::to_string(each.rank) + " on " + place(each.node_rank, each.host) +
                role_text(each) + ": " + how_it_ended(each));
    const std::vector<std::string> message = lines_of(each.message);
    if (!message.empty()) writer.line("                " + message.front());
  }
  const std::size_t more = failures.size() - shown + left_out;
  if (more > 0) writer.line("  and " + std::to_string(more) + " more");
}

void write_left_out(Writer& writer, const Outcome& outcome) {
  if (outcome.left_out.empty()) return;
  writer.section("Left out");
  for (const LeftOut& node : outcome.left_out)
    writer.line("  " + place(node.node_rank, node.host) + ", after round " +
                std::to_string(node.round) + ": " + printable(node.reason));
}

void write_foot(Writer& writer, const Outcome& outcome) {
  const ReportStyle& style = writer.style();
  std::string text = counted(static_cast<std::size_t>(std::max(outcome.node_count, 0)), "node") +
                     ", " +
                     counted(static_cast<std::size_t>(std::max(outcome.world_size, 0)), "worker") +
                     ", " + in_words(outcome.duration);
  if (outcome.restarts > outcome.max_restarts) {  // they are counted in a window
    text += ", " + counted(static_cast<std::size_t>(outcome.restarts), "restart");
  } else if (outcome.max_restarts > 0) {
    text += ", " + std::to_string(outcome.restarts) + " of " +
            counted(static_cast<std::size_t>(outcome.max_restarts), "restart") + " used";
  }
  writer.section("Job");
  writer.field("run", {printable(outcome.run_id) + " (" + text + ")"});
  if (!style.log_directory.empty()) writer.field("logs", {printable(style.log_directory)});
  if (!style.report_file.empty()) writer.field("report", {printable(style.report_file)});
}

void write_failed(Writer& writer, const WorkersFailed& failed, const Outcome& outcome) {
  if (failed.failures.empty()) {
    writer.headline("job failed, and no worker said why");
    return write_foot(writer, outcome);
  }
  const Failure& root = failed.failures.front();
  writer.line("");  // apart from what the workers wrote
  writer.headline("job failed: rank " + std::to_string(root.rank) + " on " +
                  place(root.node_rank, root.host) + role_text(root) + ": " + how_it_ended(root));
  write_root_cause(writer, root, outcome);
  write_others(writer, failed.failures, outcome.failures_left_out);
  write_left_out(writer, outcome);
  write_foot(writer, outcome);
}

std::string after(const Outcome& outcome) {
  return outcome.duration.count() > 0 ? " after " + in_words(outcome.duration) : "";
}

}  // namespace

std::string report_text(const Outcome& outcome, const ReportStyle& style) {
  Writer writer(style);
  std::visit(
      Overloaded{
          [](const Succeeded&) {},
          [&](const WorkersFailed& failed) { write_failed(writer, failed, outcome); },
          [&](const Interrupted& interrupted) {
            writer.headline("job ended by " + signal_name(interrupted.signal) + ", sent to " +
                            place(interrupted.node_rank, interrupted.host) + after(outcome));
          },
          [&](const NodeLost& lost) {
            writer.headline("job ended: " + place(lost.node_rank, lost.host) +
                            (lost.is_coordinator ? ", which the others had joined," : "") +
                            " was lost" + after(outcome) +
                            (lost.reason.empty() ? "" : ": " + printable(lost.reason)));
            writer.line("  This node's workers were stopped; how that node's ended is not known.");
          },
          [&](const NotRun& not_run) { writer.line(error_text(style.invoked_as, not_run.error)); },
          [&](const Preempted& preempted) {
            writer.headline("job preempted" + after(outcome) + ": " + printable(preempted.reason));
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

}  // namespace drun

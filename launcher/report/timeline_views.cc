#include "launcher/report/timeline_views.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <utility>

#include "agent/status/redaction.h"
#include "launcher/base/words.h"

namespace drun {
namespace {

using agent::Phase;
using timeline::Job;
using timeline::Span;
using timeline::TimedFailure;

// --- Diagnosis

// "node 1 (gpu1) was lost: no heartbeat for 10 s"
NodeLost lost_node_of(const std::string& message) {
  constexpr std::string_view kNode = "node ";
  constexpr std::string_view kLost = ") was lost: ";
  NodeLost lost;
  lost.reason = message;
  const std::size_t open = message.find(" (");
  const std::size_t close = message.find(kLost);
  if (!message.starts_with(kNode) || open > close || close == message.npos) return lost;
  lost.node_rank = std::max(0, std::atoi(message.c_str() + kNode.size()));
  lost.host = message.substr(open + 2, close - open - 2);
  lost.reason = message.substr(close + kLost.size());
  return lost;
}

}  // namespace

std::string title_of(agent::FaultClass fault) {
  switch (fault) {
    case agent::FaultClass::HostMemory:
      return "out of memory on the host";
    case agent::FaultClass::GpuMemory:
      return "out of memory on a GPU";
    case agent::FaultClass::MissingRank:
      return "missing rank";
    case agent::FaultClass::DataLoader:
      return "data loader";
    case agent::FaultClass::UserError:
      return "error at start-up";
    default:
      return word_of(fault);
  }
}

std::string advice_text(const agent::Diagnosis& diagnosis) {
  switch (diagnosis.restart_helps) {
    case agent::RestartHelps::Yes:
      return "a restart can help; " + diagnosis.advice;
    case agent::RestartHelps::No:
      return "a restart does not help; " + diagnosis.advice;
    case agent::RestartHelps::Unknown:
      break;
  }
  return diagnosis.advice;
}

agent::Diagnosis diagnosis_of(const Job& job) {
  if (job.diagnosis) return *job.diagnosis;
  Outcome outcome;
  outcome.world_size = job.world_size;
  outcome.node_count = job.node_count;
  outcome.restarts = job.restarts;
  agent::Observations observations;
  if (!job.rounds.empty()) {
    const timeline::Round& last = job.rounds.back();
    observations.round_ran = std::chrono::milliseconds(
        static_cast<long long>(std::clamp((last.end_s - last.begin_s) * 1000, 0.0, 1e15)));
  }
  if (job.outcome == "interrupted") {
    agent::Diagnosis diagnosis = agent::diagnose({.ending = Interrupted{}});
    diagnosis.summary = job.message;
    diagnosis.evidence = {job.message};
    return diagnosis;
  }
  if (job.outcome == "preempted") return agent::diagnose({.ending = Preempted{job.message}});
  if (job.outcome == "node_lost") return agent::diagnose({.ending = lost_node_of(job.message)});
  if (job.outcome != "failed" && job.outcome != "unknown") return {};
  WorkersFailed failed;
  if (job.root_cause) failed.failures.push_back(*job.root_cause);
  for (std::size_t i = 1; i < job.failures.size(); ++i) failed.failures.push_back(job.failures[i]);
  if (failed.failures.empty()) return {};
  if (!job.hang_stacks.empty() && failed.failures.front().traceback.size() < job.hang_stacks.size())
    failed.failures.front().traceback = job.hang_stacks;
  outcome.ending = std::move(failed);
  return agent::diagnose(outcome, observations);
}

// --- Text

namespace {

constexpr std::size_t kMostNodeLines = 32;
constexpr std::size_t kMostRoundLines = 20;
constexpr std::size_t kLabelColumns = 26;

char letter_of(Phase phase) {
  constexpr std::array kLetters{'w', 's', 'i', '+', '=', 'x', 'r', '-'};
  return kLetters.at(agent::index_of(phase));
}

// Foreground colors of 16-color terminals.
const char* color_of(Phase phase) {
  constexpr std::array kColors{"90", "35", "35", "33", "32", "31", "36", "34"};
  return kColors.at(agent::index_of(phase));
}

// Counts each byte beyond ASCII as a column, so the result may be too short but never too long.
std::string fitted(std::string text, std::size_t columns) {
  if (text.size() > columns) {
    text.resize(columns > 3 ? columns - 3 : 0);
    while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0x80) != 0) text.pop_back();
    text += "...";
  }
  text.resize(columns, ' ');
  return text;
}

std::string cut_line(const std::string& text, std::size_t columns) {
  std::string line = fitted(text, columns);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

// "w waiting  = running": the phases with nonzero `totals`, in lines of at most `columns`.
std::string phase_legend(const timeline::PhaseSeconds& totals, std::size_t columns,
                         bool has_color) {
  std::string text;
  std::size_t column = 0;
  for (std::size_t i = 0; i < agent::kPhaseCount; ++i) {
    if (totals.at(i) <= 0) continue;
    const auto phase = static_cast<Phase>(i);
    const std::string name = word_of(phase);
    const std::size_t width = name.size() + 4;  // with its letter and two leading spaces
    if (column > 0 && column + width > columns) {
      text += "\n";
      column = 0;
    }
    text +=
        "  " + painted(color_of(phase), std::string(1, letter_of(phase)), has_color) + " " + name;
    column += width;
  }
  return text;
}

class TextPage {
 public:
  TextPage(const Job& job, const TextStyle& style)
      : job_(job),
        has_color_(style.has_color),
        columns_(static_cast<std::size_t>(std::clamp(style.columns, 40, 400))) {}

  std::string make() {
    const bool is_good = job_.outcome == "succeeded" || job_.outcome == "running";
    text_ = painted(is_good ? "1;32" : "1;31", printable(headline_of(job_)), has_color_) + "\n";
    line("  run " + printable(job_.run_id) + ", began " + printable(job_.started) + ", " +
         in_words(job_.wall_s) + ", " + job_size(job_.world_size, job_.node_count) + ", " +
         counted(job_.restarts, "restart"));
    if (job_.root_cause) cause(*job_.root_cause);
    timeline_rows();
    rounds();
    ledger();
    if (!job_.slow.empty()) section("Slow ranks and nodes");
    for (const timeline::Slow& slow : job_.slow) line("  " + printable(words_of(slow)));
    if (!job_.command.empty()) {
      section("Command");
      line("  " + printable(shell_quoted(agent::redacted_command(job_.command))));
    }
    for (const std::string& note : job_.notes) text_ += "note: " + printable(note) + "\n";
    return std::move(text_);
  }

 private:
  void section(const char* title) { text_ += "\n" + painted("1", title, has_color_) + "\n"; }
  void line(const std::string& words) { text_ += cut_line(words, columns_); }

  void cause(const TimedFailure& failure) {
    section("Root cause");
    line("  rank       " + std::to_string(failure.rank) + " on node " +
         std::to_string(failure.node_rank) + " (" + printable(failure.host) + "), pid " +
         std::to_string(failure.pid));
    line("  ended      " + printable(to_string(failure.status)) + ", after " +
         in_words(failure.at_s) + " in round " + std::to_string(failure.round));
    const agent::Diagnosis diagnosis = diagnosis_of(job_);
    if (diagnosis.fault != agent::FaultClass::None) {
      line("  diagnosis  " + title_of(diagnosis.fault) + ": " + printable(diagnosis.summary));
      line("  advice     " + printable(advice_text(diagnosis)));
    }
    if (!failure.message.empty()) line("  message    " + printable(failure.message));
    for (const std::string& tail : failure.stderr_tail) text_ += "  | " + printable(tail) + "\n";
  }

  void timeline_rows() {
    section("Timeline");
    const std::size_t width = columns_ - kLabelColumns - 1;
    std::set<std::size_t> failed;
    for (const timeline::Mark& mark : job_.marks)
      if (mark.kind == timeline::MarkKind::Failure) failed.insert(mark.node);
    // Nodes with failures have priority, then the others in order.
    std::set<std::size_t> shown;
    for (const std::size_t node : failed)
      if (shown.size() < kMostNodeLines) shown.insert(node);
    for (std::size_t i = 0; i < job_.nodes.size() && shown.size() < kMostNodeLines; ++i)
      shown.insert(i);
    for (const std::size_t i : shown) {
      const timeline::Node& node = job_.nodes[i];
      const std::string name =
          (node.node_rank ? "node " + std::to_string(*node.node_rank) : std::string("node")) + " " +
          printable(node.host);
      const std::string label = fitted("  " + name, kLabelColumns - (failed.contains(i) ? 2 : 0)) +
                                (failed.contains(i) ? painted("1;31", "!", has_color_) + " " : "");
      text_ += label + phase_bar(node.spans, job_.wall_s, width, has_color_) + "\n";
    }
    if (job_.nodes.size() > shown.size())
      line("  and " + std::to_string(job_.nodes.size() - shown.size()) + " more nodes");
    const std::string end = in_words(job_.wall_s);
    std::string axis(kLabelColumns, ' ');
    axis += "0";
    if (width > end.size() + 1) axis += std::string(width - end.size() - 1, ' ') + end;
    line(axis);
    text_ += phase_legend(job_.ledger, columns_, has_color_) + "\n";
    if (!failed.empty()) text_ += "  ! failure\n";
  }

  void rounds() {
    if (job_.rounds.size() < 2) return;
    section("Rounds");
    const std::size_t first =
        job_.rounds.size() > kMostRoundLines ? job_.rounds.size() - kMostRoundLines : 0;
    if (first > 0) line("  (" + std::to_string(first) + " rounds before)");
    for (std::size_t i = first; i < job_.rounds.size(); ++i) {
      const timeline::Round& round = job_.rounds[i];
      line("  " + std::to_string(round.round) + "  after " + in_words(round.begin_s) + ", for " +
           in_words(round.end_s - round.begin_s) + ", " + counted(round.world_size, "worker") +
           (round.reason.empty() ? "" : ": " + printable(round.reason)));
    }
  }

  void ledger() {
    section("Where the time went (mean of all nodes)");
    for (std::size_t i = 0; i < agent::kPhaseCount; ++i) {
      const double seconds = job_.ledger.at(i);
      if (seconds <= 0) continue;
      char share[16];
      std::snprintf(share, sizeof(share), "%5.1f %%",
                    job_.wall_s > 0 ? 100 * seconds / job_.wall_s : 0.0);
      const timeline::Slowest& slowest = job_.slowest.at(i);
      line("  " + fitted(word_of(static_cast<Phase>(i)), 12) + fitted(in_words(seconds), 14) +
           share + "  " +
           (slowest.who.empty()
                ? ""
                : "longest: " + in_words(slowest.seconds) + ", " + printable(slowest.who)));
    }
  }

  const Job& job_;
  bool has_color_;
  std::size_t columns_;
  std::string text_;
};

}  // namespace

std::string phase_bar(std::span<const Span> spans, double wall_s, std::size_t width,
                      bool has_color) {
  std::vector<timeline::PhaseSeconds> cells(width);
  if (wall_s > 0 && width > 0) {
    const double cell_s = wall_s / static_cast<double>(width);
    for (const Span& span : spans) {
      const auto first = static_cast<std::size_t>(
          std::clamp(span.begin_s / cell_s, 0.0, static_cast<double>(width - 1)));
      const auto last = static_cast<std::size_t>(
          std::clamp(span.end_s / cell_s, 0.0, static_cast<double>(width - 1)));
      for (std::size_t i = first; i <= last; ++i) {
        const double from = std::max(span.begin_s, static_cast<double>(i) * cell_s);
        const double to = std::min(span.end_s, static_cast<double>(i + 1) * cell_s);
        cells[i].at(agent::index_of(span.phase)) += std::max(0.0, to - from);
      }
    }
  }
  std::string text;
  std::string piece;
  std::optional<Phase> phase;
  const auto flush = [&] {
    if (!piece.empty()) text += phase ? painted(color_of(*phase), piece, has_color) : piece;
    piece.clear();
  };
  for (const timeline::PhaseSeconds& cell : cells) {
    const auto most = std::max_element(cell.begin(), cell.end());
    std::optional<Phase> next;
    if (*most > 0) next = static_cast<Phase>(most - cell.begin());
    if (next != phase) flush();
    phase = next;
    piece += next ? letter_of(*next) : ' ';
  }
  flush();
  return text;
}

std::string report_text(const Job& job, const TextStyle& style) {
  return TextPage(job, style).make();
}

}  // namespace drun

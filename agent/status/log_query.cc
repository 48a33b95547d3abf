#include "agent/status/log_query.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "agent/output/log_files.h"
#include "rendezvous/base/bytes.h"
#include "rendezvous/base/foreign_json.h"
#include "rendezvous/base/text.h"

namespace drun::agent {
namespace {

using PartJson = nlohmann::json;

constexpr std::size_t kMostLabelBytes = 256;
constexpr std::size_t kMostNoteBytes = 4096;  // in JSON up to six times as many

}  // namespace

std::string log_request(const LogQuery& query) {
  return std::to_string(query.rank) + " " + (query.round ? std::to_string(*query.round) : "-") +
         (query.is_stderr ? " err " : " out ") + std::to_string(query.offset) + "\n";
}

std::optional<LogQuery> parse_log_request(std::string_view request) {
  if (!request.ends_with('\n')) return std::nullopt;
  request.remove_suffix(1);
  const std::vector<std::string_view> words = split(request, ' ');
  if (words.size() != 4 || (words[2] != "out" && words[2] != "err")) return std::nullopt;
  const auto rank = whole_number<int>(words[0]);
  const auto round = whole_number<int>(words[1]);
  const auto offset = whole_number<std::uint64_t>(words[3]);
  if (rank.value_or(-1) < 0 || !offset || round.value_or(0) < 0) return std::nullopt;
  if (!round && words[1] != "-") return std::nullopt;
  return LogQuery{.rank = *rank, .round = round, .is_stderr = words[2] == "err", .offset = *offset};
}

std::string log_answer(const LogPart& part) {
  const PartJson head{{"round", part.round},
                      {"size", part.size_bytes},
                      {"label", rendezvous::cut_text(part.label, kMostLabelBytes)},
                      {"note", rendezvous::cut_text(part.note, kMostNoteBytes)}};
  return head.dump(-1, ' ', false, PartJson::error_handler_t::replace) + "\n" + part.text;
}

std::optional<LogPart> parse_log_answer(std::string_view answer) {
  const std::size_t end = answer.find('\n');
  if (end == answer.npos || answer.size() - end - 1 > kMostLogPartBytes) return std::nullopt;
  const PartJson head = parse_foreign_json<PartJson>(answer.substr(0, end));
  try {
    LogPart part{.round = int_of(head.at("round")),
                 .size_bytes = head.at("size").get<std::uint64_t>(),
                 .text = std::string(answer.substr(end + 1)),
                 .label = head.at("label").get<std::string>(),
                 .note = head.at("note").get<std::string>()};
    if (part.label.size() > kMostLabelBytes || part.note.size() > kMostNoteBytes)
      return std::nullopt;
    return part;
  } catch (const PartJson::exception&) {
    return std::nullopt;
  }
}

void LogReader::read(const std::string& request, int round,
                     std::function<void(std::string answer)> on_answer) {
  LogPart part{.round = round};
  const auto refuse = [&](const std::string& reason) {
    part.note = host_ + ": " + reason;
    on_answer(log_answer(part));
  };
  const std::optional<LogQuery> query = parse_log_request(request);
  if (!query) return refuse("malformed request");
  const int asked_round = query->round.value_or(round);
  if (asked_round > round) return refuse("round " + std::to_string(asked_round) + " has not begun");
  const std::optional<RankLog> log = output_.rank_log({query->rank, asked_round}, query->is_stderr);
  if (!log) return refuse("rank " + std::to_string(query->rank) + " writes no such log file here");
  if (reads_ >= kMostLogReads) return refuse("too many ask at the same time");
  ++reads_;
  part.label = log->label;
  const auto read = std::make_shared<LogPart>(std::move(part));
  output_.run_off_loop(
      [read, path = log->path, offset = query->offset] {
        const FilePart file = read_part_of(path, offset, kMostLogPartBytes);
        read->size_bytes = file.size_bytes;
        read->text = file.text;
        if (!file.is_read) read->note = "cannot read " + path;
      },
      [this, read, on_answer = std::move(on_answer)](bool has_run) {
        --reads_;
        if (has_run) on_answer(log_answer(*read));
      });
}

}  // namespace drun::agent

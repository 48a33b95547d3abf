#include "agent/status/log_reader.h"

#include <memory>
#include <optional>

#include "agent/output/log_files.h"
#include "agent/status/log_query.h"

namespace drun::agent {

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

#include "agent/output/gathered_lines.h"

#include <utility>

#include "rendezvous/protocol/line_window.h"

namespace drun::agent {

using rendezvous::Lines;
using rendezvous::LinesFrom;

GatheredLines::GatheredLines(asio::io_context& io, Log log, const OutputSpec& spec, Places places,
                             Listener listener)
    : io_(io),
      log_(std::move(log)),
      spec_(spec),
      places_(std::move(places)),
      listener_(std::move(listener)) {}

void GatheredLines::on_lines(const LinesFrom& from, Lines lines) {
  waiting_.push_back({from, std::move(lines)});
  wake();
}

void GatheredLines::on_lines_end(rendezvous::Peer peer) {
  waiting_.push_back({{.peer = peer}, std::nullopt});
  wake();
}

void GatheredLines::wake() {
  const bool is_congested =
      places_.out.is_congested() || places_.err.is_congested() || places_.writer.is_congested();
  if (is_congested || waiting_.empty() || std::exchange(is_posted_, true)) return;
  asio::post(io_, [this, alive = std::weak_ptr<char>(alive_)] {
    if (alive.expired()) return;
    is_posted_ = false;
    pass_on_one();
  });
}

void GatheredLines::pass_on_one() {
  Waiting next = std::move(waiting_.front());
  waiting_.pop_front();
  const rendezvous::Peer peer = next.from.peer;
  if (next.lines) {
    const std::size_t cost = rendezvous::cost_bytes(*next.lines);
    pass_on(next.from, *next.lines);
    listener_.on_taken(peer, cost);
  } else {
    const auto begin = streams_.lower_bound({peer, 0});
    const auto after = streams_.lower_bound({peer + 1, 0});
    for (auto each = begin; each != after; ++each) end(each->second);
    streams_.erase(begin, after);
  }
  if (waiting_.empty()) return listener_.on_empty();
  wake();
}

void GatheredLines::pass_on(const LinesFrom& from, Lines& lines) {
  Stream& stream = stream_of(from, lines);
  stream.last = lines.time;
  if (lines.is_kept && stream.file) places_.writer.append(stream.file, lines.text);
  Console& console = console_of(stream.is_stderr);
  if (lines.is_shown && !console.is_gone()) {
    const bool is_piece = !stream.held.empty() || lines.goes_on;
    if (is_piece) stream.held.append(lines.text);
    // Ends a line that is too long, because memory is bounded.
    const bool is_whole = !lines.goes_on || stream.held.size() > 2 * kLongestHeldBytes;
    if (is_whole) {
      const std::string whole = is_piece ? std::exchange(stream.held, {}) : std::string();
      stream.form->take(is_piece ? std::string_view(whole) : lines.text, lines.time,
                        console.queue());
      console.flush();
    }
  }
  if (!lines.is_end) return;
  end(stream);
  streams_.erase({from.peer, 2 * lines.local_rank + (lines.is_stderr ? 1 : 0)});
}

GatheredLines::Stream& GatheredLines::stream_of(const LinesFrom& from, const Lines& lines) {
  Stream& stream = streams_[{from.peer, 2 * lines.local_rank + (lines.is_stderr ? 1 : 0)}];
  if (stream.number != 0) return stream;
  stream.number = ++streams_made_;
  stream.is_stderr = lines.is_stderr;
  // The sending node has split the text into lines, so nothing is held back here.
  stream.form.emplace(stream.number,
                      form_of(spec_,
                              {.node_rank = from.node_rank,
                               .host = from.host,
                               .rank = from.rank,
                               .local_rank = lines.local_rank,
                               .role = from.role,
                               .round = lines.round,
                               .is_stderr = lines.is_stderr},
                              lines.is_labeled),
                      0);
  if (lines.is_kept && places_.files->has_place()) stream.file = open_file(from, lines);
  return stream;
}

std::shared_ptr<FileWriter::File> GatheredLines::open_file(const LinesFrom& from,
                                                           const Lines& lines) {
  const auto kind = lines.is_stderr ? LogFiles::Stream::Stderr : LogFiles::Stream::Stdout;
  const std::string path = places_.files->stream_path(lines.round, from.rank, kind);
  has_files_ = true;
  return places_.writer.open(
      [files = places_.files, path, round = lines.round, rank = from.rank]() -> Result<UniqueFd> {
        if (Result<void> made = files->reach_attempt(round); !made) return made.error();
        if (Result<void> made = files->make_worker_directory(round, rank); !made)
          return made.error();
        return create_log(path);
      },
      path,
      [this](const Error& error) {
        if (!std::exchange(has_complained_, true))
          log_.warning("a rank's log file is left out: " + error.message);
      });
}

void GatheredLines::end(Stream& stream) {
  Console& console = console_of(stream.is_stderr);
  if (console.is_gone() || !stream.form) return;
  if (!stream.held.empty())
    stream.form->take(std::exchange(stream.held, {}), stream.last, console.queue());
  stream.form->end_of_stream(stream.last, console.queue());
  console.flush();
}

Console& GatheredLines::console_of(bool is_stderr) const {
  return is_stderr && spec_.mode != OutputMode::Json ? places_.err : places_.out;
}

}  // namespace drun::agent

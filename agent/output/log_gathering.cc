#include "agent/output/log_gathering.h"

#include <iterator>
#include <utility>

#include "agent/output/host_channel.h"
#include "rendezvous/protocol/line_window.h"

namespace drun::agent {

using rendezvous::cost_bytes;
using rendezvous::Lines;
using rendezvous::LinesFrom;

namespace {

constexpr std::size_t kWindowBytes = 2 * kHighWaterBytes;

}  // namespace

void LineSender::open(std::size_t window_bytes) {
  close();
  window_bytes_ = window_bytes;
}

std::vector<Lines> LineSender::close() {
  std::vector<Lines> left(std::make_move_iterator(under_way_.begin()),
                          std::make_move_iterator(under_way_.end()));
  left.insert(left.end(), std::make_move_iterator(waiting_.begin()),
              std::make_move_iterator(waiting_.end()));
  *this = LineSender();
  return left;
}

void LineSender::push(const Lines& like, std::string_view text) {
  const std::size_t most_bytes = rendezvous::most_text_bytes(window_bytes_);
  do {
    const std::string_view piece = whole_lines_within(text, most_bytes);
    text.remove_prefix(piece.size());
    Lines lines = like;
    lines.text = piece;
    lines.goes_on = !text.empty() && !piece.ends_with('\n');
    lines.is_end = like.is_end && text.empty();
    add(std::move(lines));
  } while (!text.empty());
  if (waiting_bytes_ > kMostWaitingBytes) is_congested_ = true;
}

void LineSender::add(Lines lines) {
  waiting_bytes_ += cost_bytes(lines);
  waiting_.push_back(std::move(lines));
}

const Lines* LineSender::next() {
  if (waiting_.empty()) return nullptr;
  const std::size_t cost = cost_bytes(waiting_.front());
  if (under_way_bytes_ + cost > window_bytes_) return nullptr;
  under_way_bytes_ += cost;
  waiting_bytes_ -= cost;
  under_way_.push_back(std::move(waiting_.front()));
  waiting_.pop_front();
  if (waiting_bytes_ <= kFewWaitingBytes) is_congested_ = false;
  return &under_way_.back();
}

void LineSender::granted(std::size_t bytes) {
  granted_bytes_ += bytes;
  while (!under_way_.empty() && cost_bytes(under_way_.front()) <= granted_bytes_) {
    const std::size_t cost = cost_bytes(under_way_.front());
    granted_bytes_ -= cost;
    under_way_bytes_ -= cost;
    under_way_.pop_front();
  }
  if (under_way_.empty()) granted_bytes_ = 0;  // discards an excess grant
}

void GatherLink::push(const rendezvous::Lines& like, std::string_view text) {
  if (!send_) return;
  sender_.push(like, text);
  send_all();
}

void GatherLink::send_all() {
  while (const rendezvous::Lines* lines = sender_.next()) send_(*lines);
}

void GatherLink::give_up() {
  has_given_up_ = true;
  send_ = nullptr;
  sender_.close();
  listener_.on_room();
  listener_.on_idle();
}

void GatherLink::on_lines_wanted(std::size_t window_bytes, Send send) {
  if (has_given_up_) return;
  ++trip_;
  send_ = std::move(send);
  sender_.open(window_bytes);
}

void GatherLink::on_lines_taken(std::size_t bytes) {
  const bool was_congested = sender_.is_congested();
  const bool was_idle = sender_.is_idle();
  sender_.granted(bytes);
  if (send_) send_all();
  if (was_congested && !sender_.is_congested()) listener_.on_room();
  if (!was_idle && sender_.is_idle()) listener_.on_idle();
}

void GatherLink::on_lines_lost() {
  if (!send_) return;
  send_ = nullptr;
  listener_.on_lost(sender_.close());
  listener_.on_room();
  listener_.on_idle();
}

StdoutLines::StdoutLines(asio::io_context& io, Console& channel, GatherLink& link,
                         std::function<rendezvous::LinesFrom(int)> from)
    : io_(io), channel_(channel), link_(link), from_(std::move(from)) {}

void StdoutLines::start() {
  link_.on_lines_wanted(kWindowBytes, [this](const rendezvous::Lines& lines) { send(lines); });
}

void StdoutLines::send(const rendezvous::Lines& lines) {
  owed_bytes_ += rendezvous::cost_bytes(lines);
  if (!channel_.is_gone()) {
    channel_.queue().put_between_lines(
        to_frame(FrameType::Lines, encode_lines(from_(lines.local_rank), lines)));
    channel_.flush();
  }
  wake();
}

// Not called from within send(), because the link calls that while it iterates over its messages.
void StdoutLines::wake() {
  if (owed_bytes_ == 0 || channel_.is_congested() || std::exchange(is_posted_, true)) return;
  asio::post(io_, [this, alive = std::weak_ptr<char>(alive_)] {
    if (alive.expired()) return;
    is_posted_ = false;
    link_.on_lines_taken(std::exchange(owed_bytes_, 0));
  });
}

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
        if (!std::exchange(has_warned_, true))
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

#include "agent/output/log_uplink.h"

#include <iterator>
#include <utility>

#include "agent/output/host_channel.h"
#include "rendezvous/protocol/line_window.h"

namespace drun::agent {

using rendezvous::cost_bytes;
using rendezvous::Lines;

namespace {

// As many whole lines as fit; for a longer line, a piece of it.
std::string_view first_piece(std::string_view text, std::size_t most_bytes) {
  const std::string_view piece = text.substr(0, most_bytes);
  if (piece.size() == text.size()) return piece;
  const std::size_t end = piece.rfind('\n');
  return end == piece.npos ? piece : piece.substr(0, end + 1);
}

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
    const std::string_view piece = first_piece(text, most_bytes);
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

}  // namespace drun::agent

namespace drun::agent {

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

}  // namespace drun::agent

namespace drun::agent {
namespace {

constexpr std::size_t kWindowBytes = 2 * kHighWaterBytes;

}  // namespace

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

}  // namespace drun::agent

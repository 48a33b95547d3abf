#include "agent/output/gather/line_sender.h"

#include <iterator>
#include <utility>

#include "rendezvous/lines/line_window.h"

namespace drun::agent {

using rendezvous::cost_bytes;
using rendezvous::Lines;

namespace {

// As many whole lines as fit; of a longer one a piece.
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
  if (under_way_.empty()) granted_bytes_ = 0;  // more than was under way: not to be spent later
}

}  // namespace drun::agent

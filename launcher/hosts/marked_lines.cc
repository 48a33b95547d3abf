#include "launcher/hosts/marked_lines.h"

#include <algorithm>
#include <utility>

#include "launcher/hosts/hand_over.h"

namespace drun::hosts {
namespace {

constexpr std::size_t kMostHeldBytes = kMostLineBytes + kMark.size();

bool may_become_mark(std::string_view text) {
  return kMark.substr(0, text.size()) == text.substr(0, kMark.size());
}

static_assert(agent::kFrameMark.starts_with(kMark));

}  // namespace

// Its size, or 0 when some of it is still to come.
std::optional<std::size_t> MarkedLines::take_frame(std::string_view bytes,
                                                   const Listener& listener) {
  if (!listener.on_frame || !bytes.starts_with(agent::kFrameMark)) return std::nullopt;
  const std::size_t end = bytes.find('\n');
  const std::size_t begin = agent::kFrameMark.size();
  const auto head = agent::parse_frame_head(bytes.substr(begin, end - begin));
  if (!head) return std::nullopt;
  const std::size_t whole = end + 1 + head->payload_bytes + 1;
  if (bytes.size() < whole) return 0;
  listener.on_frame(*head, bytes.substr(end + 1, head->payload_bytes));
  return whole;
}

void MarkedLines::take(std::string_view bytes, const Listener& listener) {
  std::string joined;
  if (!held_.empty()) {
    joined = std::exchange(held_, {}).append(bytes);
    bytes = joined;
  }
  while (!bytes.empty()) {
    const std::size_t mark = bytes.find(kMark.front());
    if (mark != 0) listener.on_text(bytes.substr(0, mark));
    if (mark == bytes.npos) return;
    bytes.remove_prefix(mark);
    const std::size_t end = bytes.find('\n');
    if (!may_become_mark(bytes) || std::min(end, bytes.size()) > kMostHeldBytes) {
      listener.on_text(bytes.substr(0, 1));
      bytes.remove_prefix(1);
    } else if (end == bytes.npos) {
      held_ = bytes;
      return;
    } else if (const auto frame = take_frame(bytes, listener)) {
      if (*frame == 0) {
        held_ = bytes;
        return;
      }
      bytes.remove_prefix(*frame);
    } else {
      listener.on_line(bytes.substr(kMark.size(), end - kMark.size()));
      bytes.remove_prefix(end + 1);
    }
  }
}

void MarkedLines::end_of_stream(const Listener& listener) {
  const std::string rest = std::exchange(held_, {});
  const bool is_cut_frame = listener.on_frame && rest.starts_with(agent::kFrameMark);
  if (is_cut_frame) return;
  if (rest.size() > kMark.size())
    listener.on_line(std::string_view(rest).substr(kMark.size()));
  else if (!rest.empty())
    listener.on_text(rest);
}

}  // namespace drun::hosts

#include "agent/output/gather/stdout_lines.h"

#include <utility>

#include "agent/output/gather/line_frames.h"
#include "rendezvous/lines/line_window.h"

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

// Never from within send(), which the link calls while it looks through what it has.
void StdoutLines::wake() {
  if (owed_bytes_ == 0 || channel_.is_congested() || std::exchange(is_posted_, true)) return;
  asio::post(io_, [this, alive = std::weak_ptr<char>(alive_)] {
    if (alive.expired()) return;
    is_posted_ = false;
    link_.on_lines_taken(std::exchange(owed_bytes_, 0));
  });
}

}  // namespace drun::agent

#include "agent/output/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "rendezvous/base/bytes.h"

namespace drun::agent {
namespace {

constexpr std::size_t kUsualColumns = 80;
constexpr std::string_view kEraseLine = "\r\x1b[K";

std::size_t columns_of(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsualColumns;
}

// Replaces control characters, which host names from other nodes could contain.
std::string shown(std::string text, std::size_t columns) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c >= 0 && c < ' '; }, '?');
  if (text.size() < columns) return text;
  return std::string(rendezvous::cut_text(text, columns > 4 ? columns - 4 : 0)) + "...";
}

}  // namespace

Progress::Progress(asio::io_context& io, int fd, Draw draw)
    : timer_(io), fd_(fd), draw_(std::move(draw)) {}

void Progress::start(Text text) {
  if (::isatty(fd_) != 1) return;
  text_ = std::move(text);
  wait(kPatience);
}

void Progress::wait(std::chrono::milliseconds time) {
  timer_.expires_after(time);
  timer_.async_wait([this](const error_code& ec) {
    if (ec || !text_) return;
    if (const auto text = text_())
      show(*text);
    else
      clear();
    wait(std::chrono::seconds(1));
  });
}

void Progress::show(const std::string& text) {
  draw_(std::string(kEraseLine) + shown(text, columns_of(fd_)));
  is_drawn_ = true;
}

void Progress::clear() {
  if (std::exchange(is_drawn_, false)) draw_(kEraseLine);
}

void Progress::stop() {
  text_ = nullptr;
  timer_.cancel();
  clear();
}

Log Progress::around(const Log& log) {
  return Log([this, log](LogLevel level, std::string_view text) {
    clear();
    log.write(level, text);
  });
}

}  // namespace drun::agent

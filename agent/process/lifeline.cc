#include "agent/process/lifeline.h"

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <utility>

#include "rendezvous/base/text.h"

namespace drun::agent {
namespace {

constexpr std::size_t kMostLineBytes = 256;  // no line that means something is as long

template <typename Number>
std::optional<Number> number_after(std::string_view line, std::string_view word) {
  if (!line.starts_with(word)) return std::nullopt;
  return whole_number<Number>(line.substr(word.size()));
}

std::optional<int> signal_after(std::string_view line, std::string_view word) {
  const auto number = number_after<int>(line, word);
  return number && *number >= 1 && *number <= SIGRTMAX ? number : std::nullopt;
}

}  // namespace

Lifeline::Lifeline(asio::io_context& io, int fd, std::string pending, Signals::Listener& listener,
                   std::chrono::milliseconds silence)
    : fd_(::fcntl(fd, F_DUPFD_CLOEXEC, 3)),
      input_(io),
      silence_timer_(io),
      silence_(silence),
      held_(std::move(pending)),
      listener_(listener) {}

void Lifeline::start() {
  error_code ec = asio::error::bad_descriptor;
  if (fd_) input_.assign(fd_.get(), ec);
  if (!ec) fd_.release();
  asio::post(input_.get_executor(), [this, ec] {
    if (is_stopped_) return;
    on_bytes(std::exchange(held_, {}));
    if (ec) return end();
    restart_silence_timer();
    wait();
  });
}

void Lifeline::restart_silence_timer() {
  if (is_stopped_) return;
  silence_timer_.expires_after(silence_);
  silence_timer_.async_wait([this](const error_code& ec) {
    // One that expired just before it was set anew.
    if (ec || is_stopped_ || silence_timer_.expiry() > asio::steady_timer::clock_type::now())
      return;
    end();
  });
}

void Lifeline::stop() {
  is_stopped_ = true;
  error_code ignored;
  input_.close(ignored);
  silence_timer_.cancel();
}

void Lifeline::wait() {
  if (is_stopped_) return;
  input_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const error_code& ec) {
    if (ec || is_stopped_) return;
    read();
  });
}

void Lifeline::read() {
  std::array<char, 16 * 1024> buffer{};
  const ssize_t got = ::read(input_.native_handle(), buffer.data(), buffer.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return wait();
  if (got <= 0) return end();
  on_bytes(std::string_view(buffer.data(), static_cast<std::size_t>(got)));
  restart_silence_timer();
  wait();
}

void Lifeline::on_bytes(std::string_view bytes) {
  while (!bytes.empty() && !is_stopped_) {
    if (input_left_bytes_ > 0) {
      const std::string_view piece = bytes.substr(0, input_left_bytes_);
      input_left_bytes_ -= piece.size();
      bytes.remove_prefix(piece.size());
      if (workers_input_ != nullptr) workers_input_->on_input(piece);
      continue;
    }
    const std::size_t end = bytes.find('\n');
    held_ += bytes.substr(0, end);
    if (end == bytes.npos) {
      if (held_.size() > kMostLineBytes) held_.clear();
      return;
    }
    bytes.remove_prefix(end + 1);
    handle(std::exchange(held_, {}));
  }
}

void Lifeline::handle(std::string_view line) {
  if (const auto ending = signal_after(line, "signal ")) return listener_.on_terminate(*ending);
  if (const auto passed = signal_after(line, "pass ")) {
    if (*passed == SIGUSR1 || *passed == SIGUSR2 || *passed == SIGCONT)
      listener_.on_pass_on(*passed);
  } else if (const auto bytes = number_after<std::size_t>(line, "input ")) {
    input_left_bytes_ = *bytes;
  } else if (line == "input end") {
    if (workers_input_ != nullptr) workers_input_->on_input_end();
  } else if (line == "kill" && !std::exchange(is_killing_, true)) {
    listener_.on_terminate(SIGTERM);
    listener_.on_kill_now();
  }
}

void Lifeline::end() {
  stop();
  has_ended_ = true;
  if (kills_at_end_) ::raise(SIGKILL);
  listener_.on_terminate(SIGHUP);
}

}  // namespace drun::agent

#include "launcher/hosts/starter_input.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "rendezvous/unique_fd.h"

namespace drun::hosts {

StarterInput::StarterInput(asio::io_context& io, int fd, Listener listener)
    : fd_(fd), listener_(std::move(listener)), readiness_(io) {}

void StarterInput::set_room(std::size_t bytes) {
  room_bytes_ = bytes;
  wait();
}

// The first time there is somebody to read for.
bool StarterInput::open() {
  if (readiness_.is_open() || is_file_) return true;
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN;
  if (!epoll) return false;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd_, &event) != 0) {
    is_file_ = errno == EPERM;
    return is_file_;
  }
  error_code ec;
  readiness_.assign(epoll.get(), ec);
  if (!ec) epoll.release();
  return !ec;
}

void StarterInput::wait() {
  if (has_ended_ || is_stopped_ || is_waiting_ || room_bytes_ == 0) return;
  if (!open()) return end();
  is_waiting_ = true;
  const auto go_on = [this](const error_code& ec) {
    is_waiting_ = false;
    if (!ec && !is_stopped_) read_some();
  };
  if (is_file_)
    asio::post(readiness_.get_executor(), [go_on] { go_on({}); });
  else
    readiness_.async_wait(asio::posix::stream_descriptor::wait_read, go_on);
}

void StarterInput::read_some() {
  pollfd asked{.fd = fd_, .events = POLLIN, .revents = 0};
  // Somebody else may have read it.
  if (!is_file_ && ::poll(&asked, 1, 0) != 1) return wait();
  std::array<char, 32 * 1024> buffer{};
  const ssize_t got = ::read(fd_, buffer.data(), std::min(buffer.size(), room_bytes_));
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return wait();
  if (got <= 0) return end();
  room_bytes_ -= static_cast<std::size_t>(got);
  listener_.on_bytes(std::string_view(buffer.data(), static_cast<std::size_t>(got)));
  wait();
}

void StarterInput::end() {
  if (std::exchange(has_ended_, true)) return;
  listener_.on_end();
}

void StarterInput::stop() {
  is_stopped_ = true;
  error_code ignored;
  readiness_.close(ignored);
}

}  // namespace drun::hosts

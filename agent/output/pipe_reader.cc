#include "agent/output/pipe_reader.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace drun::agent {

Result<Pipe> make_pipe(std::size_t capacity_bytes) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) {
    const int error_number = errno;
    Error error = system_error("make a pipe for a worker's output", error_number);
    if (error_number == EMFILE) error.message += "; raise the limit with ulimit -n";
    return error;
  }
  Pipe pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
  if (capacity_bytes != kDefaultPipeBytes)
    ::fcntl(fds[0], F_SETPIPE_SZ, static_cast<int>(capacity_bytes));
  return pipe;
}

PipeReader::PipeReader(asio::io_context& io, std::span<char> buffer, Listener listener)
    : pipe_(io), buffer_(buffer), listener_(std::move(listener)) {}

Result<void> PipeReader::start(UniqueFd read_end) {
  error_code ec;
  pipe_.assign(read_end.get(), ec);
  if (ec) return system_error("watch a worker's pipe", ec.value());
  read_end.release();
  pipe_.native_non_blocking(true, ec);
  if (ec) return system_error("set O_NONBLOCK", ec.value());
  is_closed_ = false;
  wait();
  return {};
}

void PipeReader::wake() {
  if (!is_closed_ && !is_waiting_) wait();
}

void PipeReader::wait() {
  is_waiting_ = true;
  pipe_.async_wait(asio::posix::stream_descriptor::wait_read,
                   [self = shared_from_this()](const error_code& ec) {
                     if (ec == asio::error::operation_aborted) return;
                     self->is_waiting_ = false;
                     if (self->is_closed_ || !self->listener_.is_ready()) return;
                     if (self->read_once(self->buffer_.size()) == Got::End) self->close();
                     self->wake();
                   });
}

void PipeReader::take_now() {
  int held_bytes = 0;
  if (is_closed_ || ::ioctl(pipe_.native_handle(), FIONREAD, &held_bytes) != 0) return;
  std::size_t left = static_cast<std::size_t>(held_bytes);
  while (left > 0 && !is_closed_) {
    const std::size_t piece = std::min(left, buffer_.size());
    if (read_once(piece) != Got::Bytes) return;
    left -= piece;
  }
}

PipeReader::Got PipeReader::read_once(std::size_t at_most_bytes) {
  const ssize_t got = ::read(pipe_.native_handle(), buffer_.data(), at_most_bytes);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Got::Nothing;
  if (got <= 0) return Got::End;
  listener_.on_bytes(std::string_view(buffer_.data(), static_cast<std::size_t>(got)));
  return Got::Bytes;
}

void PipeReader::close() {
  if (std::exchange(is_closed_, true)) return;
  error_code ignored;
  pipe_.close(ignored);
  listener_.on_end();
}

}  // namespace drun::agent

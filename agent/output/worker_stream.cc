#include "agent/output/worker_stream.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "agent/wall_time.h"

namespace drun::agent {

Result<Pipe> make_pipe(std::size_t capacity_bytes) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return system_error("make a pipe for a worker's output", errno);
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

WorkerStream::WorkerStream(asio::io_context& io, std::span<char> buffer, Console& console,
                           FileWriter& writer, Setup setup, std::function<void()> on_end)
    : console_(console),
      writer_(writer),
      setup_(std::move(setup)),
      lines_(setup_.number, setup_.form),
      sent_lines_(setup_.number, ""),
      prompt_timer_(io),
      on_end_(std::move(on_end)),
      reader_(std::make_shared<PipeReader>(
          io, buffer,
          PipeReader::Listener{.is_ready = [this] { return !is_held_up(); },
                               .on_bytes = [this](std::string_view bytes) { take(bytes); },
                               .on_end = [this] { end(); }})) {}

WorkerStream::~WorkerStream() {
  on_end_ = nullptr;
  reader_->close();
}

void WorkerStream::take(std::string_view bytes) {
  if (!std::exchange(has_taken_, true) && setup_.on_first_bytes) setup_.on_first_bytes();
  if (setup_.is_stderr) {
    const WallTime now = wall_now();
    printed_bytes_ += watchdog_lines_.take(bytes, now);
    tail_.take(bytes);
    last_error_.take(bytes, now);
  } else {
    printed_bytes_ += bytes.size();
  }
  if (setup_.tee) writer_.append(setup_.tee, bytes);
  if (setup_.filter) {
    std::string picked;
    setup_.filter->take(bytes, picked);
    writer_.append(setup_.filtered, picked);
  }
  if (!goes_by_link()) return show(bytes, wall_now());
  sent_lines_.take(bytes, to_send_);
  send(false);
}

void WorkerStream::show(std::string_view bytes, WallTime read_at) {
  if (console_.is_gone() || bytes.empty()) return;
  lines_.take(bytes, read_at, console_.queue());
  console_.flush();
  if (setup_.shows_prompts) await_rest_of_line();
}

void WorkerStream::await_rest_of_line() {
  prompt_timer_.set(std::chrono::steady_clock::now() + kPromptDelay, [this] {
    if (console_.is_gone()) return;
    lines_.show_held(wall_now(), console_.queue());
    console_.flush();
  });
}

void WorkerStream::show_end(WallTime read_at) {
  if (console_.is_gone()) return;
  lines_.end_of_stream(read_at, console_.queue());
  console_.flush();
}

void WorkerStream::send(bool is_end) {
  if (to_send_.size_bytes() == 0 && !is_end) return;
  setup_.lines.time = wall_now();
  setup_.lines.is_end = is_end;
  setup_.link->push(setup_.lines, to_send_.bytes());
  to_send_.consume(to_send_.size_bytes());
}

void WorkerStream::take_back(const rendezvous::Lines& lines) {
  show(lines.text, lines.time);
  if (lines.is_end) show_end(lines.time);
}

void WorkerStream::leave_link() {
  if (setup_.link == nullptr) return;
  setup_.link = nullptr;
  sent_lines_.end_of_stream(to_send_);
  show(to_send_.bytes(), wall_now());
  to_send_.clear();
}

void WorkerStream::end() {
  prompt_timer_.cancel();
  if (setup_.filter) {
    std::string picked;
    setup_.filter->end_of_stream(picked);
    writer_.append(setup_.filtered, picked);
  }
  if (goes_by_link()) {
    sent_lines_.end_of_stream(to_send_);
    send(true);
  } else {
    show_end(wall_now());
  }
  if (on_end_) on_end_();
}

}  // namespace drun::agent

#include "agent/output/console.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "agent/output/log_files.h"
#include "rendezvous/base/result.h"

namespace drun::agent {
namespace {

// A terminal counts as writable if a single byte fits; a larger write could block.
constexpr std::size_t kCautiousBytes = 256;

}  // namespace

bool is_same_file(int one_fd, int other_fd) {
  struct stat one {};
  struct stat other {};
  return ::fstat(one_fd, &one) == 0 && ::fstat(other_fd, &other) == 0 &&
         one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

Console::Console(asio::io_context& io, Log log, int fd, std::string name, Listener listener)
    : log_(std::move(log)),
      name_(std::move(name)),
      listener_(std::move(listener)),
      io_(io),
      fd_(fd),
      readiness_(io) {
  open();
}

Console::Console(Console& channel, FrameType type)
    : log_(channel.log_),
      io_(channel.io_),
      fd_(-1),
      readiness_(channel.readiness_.get_executor()),
      channel_(&channel),
      type_(type) {}

void Console::open() {
  struct stat about {};
  if (::fstat(fd_, &about) != 0) return lose(errno);
  if (S_ISREG(about.st_mode)) kind_ = Kind::File;
  if (S_ISFIFO(about.st_mode)) kind_ = Kind::Pipe;
  if (S_ISSOCK(about.st_mode)) kind_ = Kind::Socket;
  if (S_ISCHR(about.st_mode) && ::isatty(fd_) == 1) kind_ = Kind::Terminal;
  if (kind_ == Kind::File) {
    // A write that hangs can outlive this object.
    file_fd_ = std::make_shared<UniqueFd>(::fcntl(fd_, F_DUPFD_CLOEXEC, 3));
    if (!*file_fd_) return lose(errno);
    file_writer_ = std::make_unique<FileWriter>(io_, log_, FileWriter::Listener{});
    file_writer_->set_place(name_);
    return;
  }
  if (kind_ == Kind::Device) return;
  if (kind_ != Kind::Socket) {
    const std::string again = "/proc/self/fd/" + std::to_string(fd_);
    own_fd_ = UniqueFd(::open(again.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (own_fd_) fd_ = own_fd_.get();
  }
  UniqueFd readiness(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event nothing_yet{};
  if (!readiness || ::epoll_ctl(readiness.get(), EPOLL_CTL_ADD, fd_, &nothing_yet) != 0)
    return lose(errno);
  error_code ec;
  readiness_.assign(readiness.get(), ec);
  if (ec) return lose(ec.value());
  readiness.release();
}

void Console::flush_to_channel() {
  std::string_view bytes = queue_.bytes();
  while (!bytes.empty() && !channel_->is_gone()) {
    const std::string_view piece = bytes.substr(0, kMostTextFrameBytes);
    channel_->queue().put_between_lines(frame_head(type_, piece.size()));
    channel_->queue().put_between_lines(piece);
    bytes.remove_prefix(piece.size());
  }
  queue_.consume(queue_.size_bytes());
  channel_->flush();
}

// Removes written bytes from the queue.
void Console::count_written(std::size_t bytes) {
  std::string_view queued = queue_.bytes();
  while (bytes > 0) {
    if (frame_left_bytes_ == 0) frame_left_bytes_ = frame_bytes(queued);
    const std::size_t size = std::min(bytes, frame_left_bytes_);
    frame_left_bytes_ -= size;
    bytes -= size;
    queued.remove_prefix(size);
  }
}

void Console::flush() {
  if (channel_ != nullptr) return flush_to_channel();
  if (is_gone_) return queue_.clear();
  if (file_writer_) {
    write_to_file();
  } else if (!is_waiting_) {
    write_what_it_takes();
  }
  if (queue_.size_bytes() > kHighWaterBytes) is_congested_ = true;
}

void Console::write_what_it_takes() {
  const bool was_empty = is_empty();
  while (!is_empty()) {
    const ssize_t written = write_some(queue_.bytes());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) break;
    if (written < 0) return lose(errno);
    if (is_channel_) count_written(static_cast<std::size_t>(written));
    queue_.consume(static_cast<std::size_t>(written));
  }
  if (!is_empty()) wait_for_room();
  note_room();
  if (is_empty() && !was_empty) listener_.on_empty();
}

void Console::note_room() {
  if (queue_.size_bytes() <= kLowWaterBytes && std::exchange(is_congested_, false))
    listener_.on_room();
}

// One write at a time; bytes queued meanwhile are written next.
void Console::write_to_file() {
  if (is_writing_ || queue_.size_bytes() == 0) return;
  struct Write {
    std::string bytes;
    int error_number = 0;
  };
  is_writing_ = true;
  auto write = std::make_shared<Write>();
  write->bytes = queue_.take_all();
  file_writer_->run(
      [write, fd = file_fd_] { write->error_number = write_all(fd->get(), write->bytes); },
      [this, write](bool has_run) {
        if (!has_run || is_gone_) return;
        is_writing_ = false;
        if (write->error_number != 0) return lose(write->error_number);
        write_to_file();
        note_room();
        if (!is_gone_ && is_empty()) listener_.on_empty();
      });
}

ssize_t Console::write_some(std::string_view bytes) const {
  if (kind_ == Kind::Socket)
    return ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (kind_ == Kind::Pipe) bytes = whole_lines_within(bytes, PIPE_BUF);  // atomic
  if (kind_ != Kind::Device && !own_fd_) {
    if (!is_writable()) {
      errno = EAGAIN;
      return -1;
    }
    if (kind_ == Kind::Terminal) bytes = bytes.substr(0, kCautiousBytes);
  }
  return ::write(fd_, bytes.data(), bytes.size());
}

bool Console::is_writable() const {
  pollfd asked{.fd = fd_, .events = POLLOUT, .revents = 0};
  return ::poll(&asked, 1, 0) > 0;  // also true for an error, which write() then reports
}

void Console::wait_for_room() {
  epoll_event writable{};
  writable.events = EPOLLOUT | EPOLLONESHOT;
  if (::epoll_ctl(readiness_.native_handle(), EPOLL_CTL_MOD, fd_, &writable) != 0)
    return lose(errno);
  is_waiting_ = true;
  readiness_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const error_code& ec) {
    if (ec == asio::error::operation_aborted) return;
    is_waiting_ = false;
    if (is_gone_) return;
    if (ec) return lose(ec.value());
    epoll_event taken{};
    if (::epoll_wait(readiness_.native_handle(), &taken, 1, 0) < 0) return lose(errno);
    write_what_it_takes();
  });
}

void Console::lose(int error_number) {
  if (std::exchange(is_gone_, true)) return;
  has_failed_ = error_number != EPIPE;
  log_.warning("the console is closed; the workers continue without it stream=" + name_ +
               " reason=" + system_message(error_number));
  stop();
}

void Console::stop() {
  if (channel_ != nullptr) return channel_->stop();
  if (!is_gone_) unfinished_frame_ = queue_.bytes().substr(0, frame_left_bytes_);
  is_gone_ = true;
  error_code ignored;
  readiness_.close(ignored);
  if (file_writer_) file_writer_->abandon();
  is_writing_ = false;
  queue_.clear();
  if (std::exchange(is_congested_, false)) listener_.on_room();
  listener_.on_empty();
}

OwnLines::OwnLines(Console& console, Log log, std::uint64_t stream)
    : console_(console), log_(std::move(log)), lines_(stream, "") {}

void OwnLines::say(std::string_view line) {
  if (console_.is_gone()) return;
  if (!console_.is_congested()) {
    waiting_bytes_ = 0;
  } else if (waiting_bytes_ + line.size() > kOwnLinesBytes) {
    ++dropped_;
    return;
  }
  waiting_bytes_ += line.size() + 1;
  lines_.take(std::string(line) + "\n", console_.queue());
  console_.flush();
}

void OwnLines::note_room() {
  if (dropped_ == 0 || console_.is_congested()) return;
  log_.warning("dropped " + std::to_string(std::exchange(dropped_, 0)) +
               " log lines here: the log was not read");
}

void OwnLines::draw(std::string_view bytes) {
  if (console_.is_gone() || !console_.is_empty() || console_.queue().is_open()) return;
  console_.queue().put_between_lines(bytes);
  console_.flush();
}

}  // namespace drun::agent

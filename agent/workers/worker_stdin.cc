#include "agent/workers/worker_stdin.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "rendezvous/base/text.h"

namespace drun::agent {
namespace {

constexpr std::string_view kRoom = "room ";
constexpr std::size_t kMostAtOnceBytes = std::size_t{16} << 10;

}  // namespace

std::string room_text(std::size_t bytes) { return std::string(kRoom) + std::to_string(bytes); }

std::optional<std::size_t> parse_room(std::string_view line) {
  if (!line.starts_with(kRoom)) return std::nullopt;
  const auto bytes = whole_number<std::size_t>(line.substr(kRoom.size()));
  return bytes && *bytes <= kInputRoomBytes ? bytes : std::nullopt;
}

std::string input_line(std::size_t bytes) { return "input " + std::to_string(bytes) + "\n"; }

WorkerStdin::WorkerStdin(asio::io_context& io, bool comes_by_lifeline,
                         std::function<void(const std::string&)> send)
    : send_(std::move(send)), comes_by_lifeline_(comes_by_lifeline), write_end_(io) {}

Result<int> WorkerStdin::open(StdinSource source, const World& world, int local_rank) {
  if (source == StdinSource::Inherited && !comes_by_lifeline_) return STDIN_FILENO;
  const bool is_first = source == StdinSource::Rank0 && local_rank == 0;
  if (is_first && world.base_rank == 0)
    return comes_by_lifeline_ ? open_pipe() : Result<int>(STDIN_FILENO);
  if (is_first) stop();  // rank 0 is elsewhere
  if (!null_) null_ = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null_) return system_error("open /dev/null", errno);
  return null_.get();
}

Result<int> WorkerStdin::open_pipe() {
  if (read_end_) return read_end_.get();
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return system_error("make a pipe for standard input", errno);
  read_end_ = UniqueFd(fds[0]);
  UniqueFd write_end(fds[1]);
  error_code ec;
  write_end_.assign(write_end.get(), ec);
  if (!ec) write_end.release();
  if (!ec) write_end_.non_blocking(true, ec);
  if (ec) return system_error("watch the pipe for standard input", ec.value());
  send_(room_text(kInputRoomBytes));
  return read_end_.get();
}

void WorkerStdin::on_input(std::string_view bytes) {
  const std::size_t held = waiting_.size() + writing_.size();
  const bool is_allowed = held + bytes.size() <= kInputRoomBytes;
  if (!write_end_.is_open() || has_ended_ || !is_allowed) return;
  waiting_.append(bytes);
  write();
}

void WorkerStdin::on_input_end() {
  has_ended_ = true;
  write();
}

void WorkerStdin::write() {
  if (!writing_.empty() || !write_end_.is_open()) return;
  if (waiting_.empty()) {
    error_code ignored;
    if (has_ended_) write_end_.close(ignored);
    return;
  }
  // In pieces, so that room is reported while the rest waits.
  writing_ = waiting_.substr(0, kMostAtOnceBytes);
  waiting_.erase(0, writing_.size());
  asio::async_write(write_end_, asio::buffer(writing_),
                    [this](const error_code& ec, std::size_t written) {
                      if (ec || !write_end_.is_open()) return;  // stopped
                      on_written(written);
                    });
}

void WorkerStdin::on_written(std::size_t bytes) {
  writing_.clear();
  if (!has_ended_) send_(room_text(bytes));
  write();
}

void WorkerStdin::stop() {
  error_code ignored;
  write_end_.close(ignored);
  read_end_ = UniqueFd();
  // A write that is pending does not use its buffer any more.
  waiting_.clear();
  writing_.clear();
}

}  // namespace drun::agent

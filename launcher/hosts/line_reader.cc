#include "launcher/hosts/line_reader.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace drun::hosts {

using Clock = std::chrono::steady_clock;

Result<std::string> LineReader::read(std::optional<std::chrono::milliseconds> at_most) {
  std::optional<Clock::time_point> deadline;
  if (at_most) deadline = Clock::now() + *at_most;
  for (std::size_t seen = 0;;) {
    const std::size_t end = held_.find('\n', seen);
    if (end != held_.npos) {
      std::string line = held_.substr(0, end);
      held_.erase(0, end + 1);
      return line;
    }
    seen = held_.size();
    if (seen > most_bytes_)
      return Error{ErrorCode::Refused, "a line over " + std::to_string(most_bytes_) + " bytes"};
    if (Result<void> got = read_some(deadline); !got) return got.error();
  }
}

Result<void> LineReader::read_some(std::optional<Clock::time_point> deadline) {
  int wait_ms = -1;
  if (deadline) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(*deadline - Clock::now());
    wait_ms = std::max(0, static_cast<int>(left.count()));
  }
  pollfd asked{.fd = fd_, .events = POLLIN, .revents = 0};
  const int ready = ::poll(&asked, 1, wait_ms);
  if (ready < 0 && errno == EINTR) return {};
  if (ready < 0) return system_error("wait for standard input", errno);
  if (ready == 0) return Error{ErrorCode::Timeout, "nothing came in time"};
  std::array<char, 64 * 1024> buffer{};
  const ssize_t got = ::read(fd_, buffer.data(), buffer.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return {};
  if (got < 0) return system_error("read standard input", errno);
  if (got == 0) return Error{ErrorCode::Closed, "standard input has ended"};
  held_.append(buffer.data(), static_cast<std::size_t>(got));
  return {};
}

}  // namespace drun::hosts

#include "agent/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace drun::agent {

Result<EventFile> EventFile::open(const std::string& path, EventPlace place, Log log) {
  EventFile events;
  const int links = path.starts_with("/dev/") ? 0 : O_NOFOLLOW;  // /dev/stderr, /dev/fd/3
  events.file_ = UniqueFd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | links, 0600));
  if (!events.file_) {
    const std::string reason = errno == ELOOP   ? "it is a symbolic link"
                               : errno == ENXIO ? "it is a pipe that nobody reads"
                                                : std::strerror(errno);
    return Error{ErrorCode::System,
                 "--events=" + path + ": " + reason + "; give a file that can be written"};
  }
  events.path_ = path;
  events.place_ = std::move(place);
  events.log_ = std::move(log);
  return events;
}

void EventFile::write(const Event& event) {
  if (!file_) return;
  const auto now =
      std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
  const std::string line = event_line(event, place_, now);
  ssize_t written = 0;
  do {
    written = ::write(file_.get(), line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0) return complain(std::strerror(errno));
  if (static_cast<std::size_t>(written) < line.size()) complain("a line was cut short");
}

void write_started(EventFile& events, const World& world, const std::vector<int>& pids) {
  for (std::size_t i = 0; i < pids.size(); ++i) {
    const int local_rank = static_cast<int>(i);
    if (pids[i] != 0)
      events.write(WorkerStarted{world.round, world.base_rank + local_rank, local_rank, pids[i]});
  }
}

void EventFile::complain(const std::string& reason) {
  if (has_complained_) return;
  has_complained_ = true;
  log_.warning("--events=" + path_ + ": " + reason + "; events are missing from there");
}

}  // namespace drun::agent

#include "agent/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "agent/output/file_writer.h"
#include "rendezvous/unique_fd.h"

namespace drun::agent {

class EventFile::Impl {
 public:
  Impl(asio::io_context& io, std::string path, EventPlace place, Log log, UniqueFd file)
      : io_(io),
        path_(std::move(path)),
        place_(std::move(place)),
        log_(std::move(log)),
        file_(std::make_shared<UniqueFd>(std::move(file))),
        writer_(io, log_, FileWriter::Listener{}) {}

  void write(const Event& event);
  void finish(std::optional<std::chrono::milliseconds> at_most);

 private:
  void complain(const std::string& reason);

  asio::io_context& io_;
  std::string path_;
  EventPlace place_;
  Log log_;
  std::shared_ptr<UniqueFd> file_;  // a write that hangs at the end holds it, too
  FileWriter writer_;
  std::size_t waiting_bytes_ = 0;
  bool has_complained_ = false;
};

void EventFile::Impl::write(const Event& event) {
  struct Write {
    std::string line;
    int error_number = 0;
    bool is_short = false;
  };
  const auto now =
      std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
  auto write = std::make_shared<Write>();
  write->line = event_line(event, place_, now);
  if (waiting_bytes_ + write->line.size() > kMostEventBytes) return complain("it takes no events");
  waiting_bytes_ += write->line.size();
  writer_.run(
      [write, file = file_] {
        ssize_t written = 0;
        do {
          written = ::write(file->get(), write->line.data(), write->line.size());
        } while (written < 0 && errno == EINTR);
        if (written < 0) write->error_number = errno;
        write->is_short = written >= 0 && static_cast<std::size_t>(written) < write->line.size();
      },
      [this, write](bool has_run) {
        waiting_bytes_ -= write->line.size();
        if (!has_run) return;
        if (write->error_number != 0) return complain(std::strerror(write->error_number));
        if (write->is_short) complain("a line was cut short");
      });
}

void EventFile::Impl::finish(std::optional<std::chrono::milliseconds> at_most) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + at_most.value_or(std::chrono::milliseconds(0));
  while (!writer_.is_idle() && (!at_most || Clock::now() < deadline)) {
    if (io_.stopped()) io_.restart();
    at_most ? io_.run_one_until(deadline) : io_.run_one();
  }
  writer_.abandon();
}

void EventFile::Impl::complain(const std::string& reason) {
  if (std::exchange(has_complained_, true)) return;
  log_.warning("--events=" + path_ + ": " + reason + "; events are missing from there");
}

EventFile::EventFile() = default;
EventFile::EventFile(EventFile&&) noexcept = default;
EventFile& EventFile::operator=(EventFile&&) noexcept = default;
EventFile::~EventFile() = default;

Result<EventFile> EventFile::open(asio::io_context& io, const std::string& path, EventPlace place,
                                  Log log) {
  const int links = path.starts_with("/dev/") ? 0 : O_NOFOLLOW;  // /dev/stderr, /dev/fd/3
  UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | links, 0600));
  if (!file) {
    const std::string reason = errno == ELOOP   ? "it is a symbolic link"
                               : errno == ENXIO ? "it is a pipe that nobody reads"
                                                : std::strerror(errno);
    return Error{ErrorCode::System,
                 "--events=" + path + ": " + reason + "; give a file that can be written"};
  }
  EventFile events;
  events.impl_ =
      std::make_unique<Impl>(io, path, std::move(place), std::move(log), std::move(file));
  return events;
}

void EventFile::write(const Event& event) {
  if (impl_) impl_->write(event);
}

void EventFile::finish(std::optional<std::chrono::milliseconds> at_most) {
  if (impl_) impl_->finish(at_most);
}

void write_started(EventFile& events, const World& world, const std::vector<int>& pids) {
  for (std::size_t i = 0; i < pids.size(); ++i) {
    const int local_rank = static_cast<int>(i);
    if (pids[i] != 0)
      events.write(WorkerStarted{world.round, world.base_rank + local_rank, local_rank, pids[i]});
  }
}

}  // namespace drun::agent

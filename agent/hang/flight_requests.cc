#include "agent/hang/flight_requests.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "agent/process/scratch.h"
#include "agent/spawn/command.h"
#include "rendezvous/base/unique_fd.h"

namespace drun::agent {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kPipeVariable = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE";
constexpr const char* kFileVariable = "TORCH_FR_DUMP_TEMP_FILE";
constexpr const char* kOldFileVariable = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE";
constexpr const char* kSocketVariable = "TORCH_WORKER_SERVER_SOCKET";
constexpr std::chrono::milliseconds kPause{25};
constexpr std::size_t kMostBytes = std::size_t{32} << 20;
constexpr std::string_view kRequest =
    "POST /handler/fr_trace_json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
    "Connection: close\r\n\r\n";

// A size and time that change with each dump. Absent: no regular file.
struct FileState {
  off_t size = 0;
  std::int64_t changed_ns = 0;
  bool operator==(const FileState&) const = default;
};
std::optional<FileState> state_of(const std::string& path) {
  struct stat about {};
  if (path.empty() || ::lstat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode))
    return std::nullopt;
  return FileState{about.st_size,
                   std::int64_t{about.st_mtim.tv_sec} * 1'000'000'000 + about.st_mtim.tv_nsec};
}

std::string read_whole(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  std::string text;
  std::array<char, std::size_t{64} << 10> part;
  while (file && text.size() < kMostBytes) {
    const ssize_t size = ::read(file.get(), part.data(), part.size());
    if (size <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(size));
  }
  return text;
}

// One worker's dump: from its socket or its file, whichever is there first.
class Request {
 public:
  explicit Request(const FlightPlace& place) : place_(place), before_(state_of(place.file)) {
    is_awaited_ = ask_pipe();
    connect();
  }

  bool is_open() const { return !dump_ && (is_awaited_ || socket_); }
  int fd() const { return socket_.get(); }
  short events() const { return sent_ < kRequest.size() ? POLLOUT : POLLIN; }

  // Call when the socket is ready.
  void proceed() {
    if (sent_ < kRequest.size()) {
      const ssize_t size = ::send(socket_.get(), kRequest.data() + sent_, kRequest.size() - sent_,
                                  MSG_NOSIGNAL | MSG_DONTWAIT);
      if (size > 0) sent_ += static_cast<std::size_t>(size);
      if (size < 0 && errno != EAGAIN && errno != EINTR) socket_.reset();
      return;
    }
    std::array<char, std::size_t{64} << 10> part;
    const ssize_t size = ::recv(socket_.get(), part.data(), part.size(), MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size > 0 && answer_.size() < kMostBytes) {
      answer_.append(part.data(), static_cast<std::size_t>(size));
      if (!is_whole()) return;
    }
    socket_.reset();
    const std::size_t body = answer_.find("\r\n\r\n");
    if (body == answer_.npos) return;
    if (Result<FlightDump> dump =
            read_flight_json(place_.rank, std::string_view(answer_).substr(body + 4));
        dump && !dump->calls.empty())
      dump_ = *std::move(dump);
  }

  // A dump is whole when its size has not changed between two looks and it can be read.
  void look_at_file() {
    if (!is_awaited_ || dump_) return;
    const std::optional<FileState> now = state_of(place_.file);
    const bool is_new = now && now != before_ && now->size > 0;
    const bool is_settled = is_new && now == last_;
    last_ = now;
    if (!is_settled) return;
    if (Result<FlightDump> dump = read_flight_dump(place_.rank, read_whole(place_.file)); dump)
      dump_ = *std::move(dump);
  }

  std::optional<FlightDump> take() { return std::move(dump_); }

 private:
  // False: the program has created no pipe.
  bool ask_pipe() const {
    if (place_.pipe.empty() || place_.file.empty()) return false;
    const UniqueFd pipe(
        ::open(place_.pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
    struct stat about {};
    if (!pipe || ::fstat(pipe.get(), &about) != 0 || !S_ISFIFO(about.st_mode)) return false;
    return ::write(pipe.get(), "1", 1) == 1;
  }

  void connect() {
    sockaddr_un address{};
    if (place_.socket.empty() || place_.socket.size() >= sizeof(address.sun_path)) return;
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, place_.socket.data(), place_.socket.size());
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd &&
        ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
      socket_ = std::move(fd);
  }

  // By its Content-Length; the server may keep the connection.
  bool is_whole() const {
    const std::size_t body = answer_.find("\r\n\r\n");
    if (body == answer_.npos) return false;
    constexpr std::string_view kLength = "Content-Length: ";
    const std::size_t length = answer_.find(kLength);
    if (length == answer_.npos || length > body) return false;
    return answer_.size() - body - 4 >=
           std::strtoull(answer_.c_str() + length + kLength.size(), nullptr, 10);
  }

  const FlightPlace& place_;
  std::optional<FileState> before_;
  std::optional<FileState> last_{};
  bool is_awaited_ = false;
  UniqueFd socket_{};
  std::size_t sent_ = 0;
  std::string answer_{};
  std::optional<FlightDump> dump_{};
};

}  // namespace

std::vector<std::optional<FlightDump>> collect_flights(const std::vector<FlightPlace>& places,
                                                       std::chrono::milliseconds limit,
                                                       const std::atomic<bool>& is_cancelled) {
  const Clock::time_point end = Clock::now() + limit;
  std::vector<Request> requests;
  requests.reserve(places.size());
  for (const FlightPlace& place : places) requests.emplace_back(place);
  while (!is_cancelled && Clock::now() < end) {
    std::vector<pollfd> waiting;
    std::vector<Request*> of;
    bool is_open = false;
    for (Request& request : requests) {
      is_open = is_open || request.is_open();
      if (!request.is_open() || request.fd() < 0) continue;
      waiting.push_back({.fd = request.fd(), .events = request.events(), .revents = 0});
      of.push_back(&request);
    }
    if (!is_open) break;
    ::poll(waiting.data(), waiting.size(), static_cast<int>(kPause.count()));
    for (std::size_t i = 0; i < waiting.size(); ++i)
      if (waiting[i].revents != 0) of[i]->proceed();
    for (Request& request : requests) request.look_at_file();
  }
  std::vector<std::optional<FlightDump>> dumps;
  dumps.reserve(requests.size());
  for (Request& request : requests) dumps.push_back(request.take());
  return dumps;
}

FlightRequests::FlightRequests(asio::io_context& io, const Log& log, const AgentSpec& spec)
    : io_(io), is_on_(spec.hang_timeout.count() > 0), thread_(io, log, {}) {
  const std::string* const pipe = users_value(spec.worker, kPipeVariable);
  const std::string* file = users_value(spec.worker, kFileVariable);
  if (file == nullptr) file = users_value(spec.worker, kOldFileVariable);
  const std::string* const socket = users_value(spec.worker, kSocketVariable);
  names_ = {.pipe = pipe != nullptr ? *pipe : "",
            .file = file != nullptr ? *file : "",
            .sets_pipe = pipe == nullptr,
            .sets_file = file == nullptr,
            .sets_socket = socket == nullptr};
}

FlightRequests::~FlightRequests() { stop(); }

Result<void> FlightRequests::prepare(const World& world) {
  if (!is_on_) return {};
  directory_.clear();
  if (Result<void> made = directory_.make(); !made) return made;
  round_ = world.round;
  base_rank_ = world.base_rank;
  workers_ = world.local_world_size;
  const std::string stem = directory_.path() + "/" + std::to_string(round_) + "_";
  if (names_.sets_pipe) names_.pipe = stem;
  if (names_.sets_file) names_.file = stem;
  return {};
}

std::string FlightRequests::socket_of(int local_rank) const {
  return directory_.path() + "/" + std::to_string(round_) + "_" + std::to_string(local_rank) +
         ".sock";
}

std::vector<EnvironmentEntry> FlightRequests::environment(int local_rank) const {
  std::vector<EnvironmentEntry> own;
  if (!is_on_ || !directory_.is_made()) return own;
  if (names_.sets_pipe) own.emplace_back(kPipeVariable, names_.pipe);
  if (names_.sets_file) own.emplace_back(kFileVariable, names_.file);
  if (names_.sets_socket) own.emplace_back(kSocketVariable, socket_of(local_rank));
  return own;
}

void FlightRequests::ask(OnDumps on_dumps) {
  stop();
  if (!is_on_ || !directory_.is_made() || !thread_.is_idle())
    return asio::post(io_, [on_dumps = std::move(on_dumps)] { on_dumps({}); });
  std::vector<FlightPlace> places;
  places.reserve(static_cast<std::size_t>(workers_));
  for (int i = 0; i < workers_; ++i) {
    const std::string rank = std::to_string(base_rank_ + i);
    places.push_back({.rank = base_rank_ + i,
                      .pipe = names_.pipe.empty() ? "" : names_.pipe + rank + ".pipe",
                      .file = names_.file.empty() ? "" : names_.file + rank,
                      .socket = names_.sets_socket ? socket_of(i) : ""});
  }
  is_cancelled_ = std::make_shared<std::atomic<bool>>(false);
  auto dumps = std::make_shared<std::vector<std::optional<FlightDump>>>();
  thread_.run([places = std::move(places), is_cancelled = is_cancelled_,
               dumps] { *dumps = collect_flights(places, kLimit, *is_cancelled); },
              [is_cancelled = is_cancelled_, dumps, on_dumps = std::move(on_dumps)](bool has_run) {
                if (!*is_cancelled)
                  on_dumps(has_run ? *dumps : std::vector<std::optional<FlightDump>>());
              });
}

void FlightRequests::stop() {
  if (is_cancelled_) *is_cancelled_ = true;
}

void FlightRequests::close() {
  stop();
  thread_.abandon();
}

}  // namespace drun::agent

#include "launcher/engines/pmi.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <string_view>

#include "launcher/engines/engine_facts.h"

namespace drun::engines {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMostLineBytes = 4096;

// The value of `name` in "cmd=get_result rc=0 value=v"; absent: it is not there.
std::optional<std::string> field_of(std::string_view line, std::string_view name) {
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), word.size() + 1));
    const std::size_t equals = word.find('=');
    if (equals != word.npos && word.substr(0, equals) == name)
      return std::string(word.substr(equals + 1));
  }
  return std::nullopt;
}

class Talk {
 public:
  Talk(int fd, milliseconds limit) : fd_(fd), limit_(limit) {}

  // The whole answer to "cmd=COMMAND ...", which must be of the kind `expected`, and no refusal.
  Result<std::string> ask(const std::string& command, std::string_view expected) {
    const std::string request = "cmd=" + command + "\n";
    const auto sent = send(fd_, request.data(), request.size(), MSG_NOSIGNAL);
    if (sent < 0) return system_error("write to PMI_FD", errno);
    if (static_cast<std::size_t>(sent) != request.size()) return unexpected("a part was taken of");
    Result<std::string> line = read_line();
    if (!line) return line;
    if (field_of(*line, "cmd") != expected || field_of(*line, "rc").value_or("0") != "0")
      return unexpected("\"" + line->substr(0, 200) + "\" is the answer to \"" + command + "\" on");
    return line;
  }

 private:
  static Error unexpected(const std::string& what) {
    return Error{ErrorCode::Refused, what + " PMI_FD"};
  }

  Result<std::string> read_line() {
    const Clock::time_point deadline = Clock::now() + limit_;
    while (true) {
      const std::size_t end = read_.find('\n');
      if (end != read_.npos) {
        const std::string line = read_.substr(0, end);
        read_.erase(0, end + 1);
        return line;
      }
      if (read_.size() > kMostLineBytes) return unexpected("a line without an end came on");
      if (const Result<void> more = read_more(deadline); !more) return more.error();
    }
  }

  Result<void> read_more(Clock::time_point deadline) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    pollfd one{.fd = fd_, .events = POLLIN, .revents = 0};
    const int ready = poll(&one, 1, static_cast<int>(std::max<milliseconds::rep>(0, left.count())));
    if (ready < 0 && errno == EINTR) return {};
    if (ready < 0) return system_error("wait for PMI_FD", errno);
    if (ready == 0) {
      return Error{ErrorCode::Timeout,
                   "no answer within " + std::to_string(limit_.count()) + " ms"};
    }
    std::array<char, 1024> piece{};
    const auto count = recv(fd_, piece.data(), piece.size(), 0);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return {};
    if (count < 0) return system_error("read PMI_FD", errno);
    if (count == 0) return Error{ErrorCode::Closed, "PMI_FD was closed"};
    read_.append(piece.data(), static_cast<std::size_t>(count));
    return {};
  }

  int fd_;
  milliseconds limit_;
  std::string read_;
};

}  // namespace

Result<std::string> meet_by_pmi(int fd, const std::optional<std::string>& told,
                                milliseconds limit) {
  assert(!told || (told->size() <= kMostPmiBytes && told->find_first_of(" \n") == told->npos));
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  Talk talk(fd, limit);
  if (const auto init = talk.ask("init pmi_version=1 pmi_subversion=1", "response_to_init"); !init)
    return init;
  const Result<std::string> space = talk.ask("get_my_kvsname", "my_kvsname");
  if (!space) return space;
  const std::string key =
      " kvsname=" + field_of(*space, "kvsname").value_or("") + " key=" + std::string(kMeetingKey);
  if (told) {
    if (const auto put = talk.ask("put" + key + " value=" + *told, "put_result"); !put) return put;
  }
  if (const auto all = talk.ask("barrier_in", "barrier_out"); !all) return all;
  const Result<std::string> got = talk.ask("get" + key, "get_result");
  if (!got) return got;
  // An engine takes a process that says no farewell for one that has crashed.
  if (const auto farewell = talk.ask("finalize", "finalize_ack"); !farewell) return farewell;
  return field_of(*got, "value").value_or("");
}

}  // namespace drun::engines

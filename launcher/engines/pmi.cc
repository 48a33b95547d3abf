#include "launcher/engines/pmi.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <utility>

#include "launcher/engines/engine_facts.h"

namespace drun::engines {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMostLineBytes = 4096;

// The value of `name` in "cmd=get_result rc=0 value=v"; nullopt if it is missing.
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

Error unexpected(const std::string& what) { return Error{ErrorCode::Refused, what + " PMI_FD"}; }

// Sends the request and waits for the answer.
Result<void> ask(int fd, PmiMeeting& meeting, milliseconds limit) {
  const std::string request = meeting.request();
  const auto sent = send(fd, request.data(), request.size(), MSG_NOSIGNAL);
  if (sent < 0) return system_error("write to PMI_FD", errno);
  if (static_cast<std::size_t>(sent) != request.size()) return unexpected("a part was taken of");
  const Clock::time_point deadline = Clock::now() + limit;
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    pollfd one{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = poll(&one, 1, static_cast<int>(std::max<milliseconds::rep>(0, left.count())));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return system_error("wait for PMI_FD", errno);
    if (ready == 0)
      return Error{ErrorCode::Timeout, "no answer within " + std::to_string(limit.count()) + " ms"};
    std::array<char, 1024> piece{};
    const auto count = recv(fd, piece.data(), piece.size(), 0);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) return system_error("read PMI_FD", errno);
    if (count == 0) return Error{ErrorCode::Closed, "PMI_FD was closed"};
    const Result<bool> answered = meeting.take({piece.data(), static_cast<std::size_t>(count)});
    if (!answered) return answered.error();
    if (*answered) return {};
  }
}

}  // namespace

PmiMeeting::PmiMeeting(std::optional<std::string> own_text) : own_text_(std::move(own_text)) {
  assert(!own_text_ || (own_text_->size() <= kMostPmiBytes &&
                        own_text_->find_first_of(" \n") == std::string::npos));
}

std::string PmiMeeting::command() const {
  const std::string key = " kvsname=" + space_ + " key=" + std::string(kMeetingKey);
  switch (step_) {
    case Step::Init:
      return "init pmi_version=1 pmi_subversion=1";
    case Step::Space:
      return "get_my_kvsname";
    case Step::Put:
      return "put" + key + " value=" + own_text_.value_or("");
    case Step::Barrier:
      return "barrier_in";
    case Step::Get:
      return "get" + key;
    case Step::Finalize:
      return "finalize";
    case Step::Over:
      break;
  }
  return "";
}

std::string PmiMeeting::request() const {
  assert(!is_over());
  return "cmd=" + command() + "\n";
}

Result<bool> PmiMeeting::take(std::string_view bytes) {
  assert(!is_over());
  read_.append(bytes);
  const std::size_t end = read_.find('\n');
  if (std::min(end, read_.size()) > kMostLineBytes)
    return unexpected("a line without an end came on");
  if (end == read_.npos) return false;
  const std::string line = read_.substr(0, end);
  read_.erase(0, end + 1);
  return understand(line);
}

Result<bool> PmiMeeting::understand(const std::string& line) {
  // In the order of Step.
  constexpr std::array<std::string_view, 6> kAnswers{
      "response_to_init", "my_kvsname", "put_result", "barrier_out", "get_result", "finalize_ack"};
  if (field_of(line, "cmd") != kAnswers[static_cast<std::size_t>(step_)] ||
      field_of(line, "rc").value_or("0") != "0") {
    return unexpected("\"" + line.substr(0, 200) + "\" is the answer to \"" + command() + "\" on");
  }
  if (step_ == Step::Space) space_ = field_of(line, "kvsname").value_or("");
  if (step_ == Step::Get) text_ = field_of(line, "value").value_or("");
  const bool is_put_next = step_ == Step::Space && own_text_;
  step_ = step_ == Step::Space && !is_put_next ? Step::Barrier
                                               : static_cast<Step>(static_cast<int>(step_) + 1);
  return true;
}

Result<std::string> meet_by_pmi(int fd, const std::optional<std::string>& own_text,
                                milliseconds limit) {
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  PmiMeeting meeting(own_text);
  while (!meeting.is_over()) {
    if (const Result<void> answered = ask(fd, meeting, limit); !answered) return answered.error();
  }
  return meeting.text();
}

}  // namespace drun::engines

#include "worker_lib/shm/handshake.h"

#include <cstring>

namespace drun::worker::shm {
namespace {

// The first byte of an answer. For the last two, the rest is the reason.
constexpr char kYes = 'y';
constexpr char kNo = 'n';
constexpr char kLate = 'l';

constexpr std::size_t kDescriptors = 2;

}  // namespace

std::string to_text(const Hello& hello) {
  return {reinterpret_cast<const char*>(&hello), sizeof hello};
}

std::optional<Hello> parse_hello(std::string_view text) {
  Hello hello;
  if (text.size() != sizeof hello) return std::nullopt;
  std::memcpy(&hello, text.data(), sizeof hello);
  return hello;
}

bool has_place(const Hello& hello, std::uint64_t segment_bytes, const std::vector<bool>& is_there) {
  return hello.size == is_there.size() && hello.segment_bytes == segment_bytes && hello.rank > 0 &&
         hello.rank < is_there.size() && !is_there[hello.rank];
}

std::string to_text(const Answer& answer) {
  if (answer.kind == Answer::Kind::Yes) {
    return kYes + std::string(reinterpret_cast<const char*>(&answer.cores), sizeof answer.cores);
  }
  return (answer.kind == Answer::Kind::Late ? kLate : kNo) + answer.why;
}

Answer parse_answer(std::string_view text, std::size_t descriptors) {
  Answer answer;
  const char kind = text.empty() ? '\0' : text.front();
  if (kind == kYes && descriptors == kDescriptors && text.size() == 1 + sizeof answer.cores) {
    answer.kind = Answer::Kind::Yes;
    std::memcpy(&answer.cores, text.data() + 1, sizeof answer.cores);
  } else if (kind == kNo || kind == kLate) {
    answer.kind = kind == kLate ? Answer::Kind::Late : Answer::Kind::No;
    answer.why = text.substr(1);
  } else {
    answer.why = "what listens in rank 0's place is not a drun of this version";
  }
  return answer;
}

}  // namespace drun::worker::shm

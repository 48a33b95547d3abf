// Any PMI answer, from an engine or another program with its descriptor, is either rejected or
// gives a text without blanks. The result does not depend on its division into pieces.
//
// Input: the first byte selects the rank and the division of the answers.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/engines/pmi.h"

namespace {

using namespace drun;

void require(bool is_true) {
  if (!is_true) std::abort();
}

struct End {
  std::string asked;
  std::string text;
  std::string error;
  bool operator==(const End&) const = default;
};

// Passes answers as they are requested, a line each, in pieces.
End meet(std::string_view answers, bool is_first, std::size_t piece) {
  End end;
  engines::PmiMeeting meeting(is_first ? std::optional<std::string>("gpu0/abc") : std::nullopt);
  while (!meeting.is_over()) {
    const std::string request = meeting.request();
    require(request.ends_with('\n') && std::count(request.begin(), request.end(), '\n') == 1);
    end.asked += request;
    std::string_view line = answers.substr(0, std::min(answers.find('\n'), answers.size()) + 1);
    answers.remove_prefix(std::min(line.size(), answers.size()));
    if (line.empty()) return end;
    bool is_answered = false;
    for (; !line.empty(); line.remove_prefix(std::min(piece, line.size()))) {
      const Result<bool> taken = meeting.take(line.substr(0, piece));
      if (!taken) {
        require(!taken.error().message.empty() && taken.error().message.size() < 8192);
        end.error = taken.error().message;
        return end;
      }
      is_answered = *taken;
    }
    if (!is_answered) return end;
  }
  end.text = meeting.text();
  require(end.text.find_first_of(" \n") == std::string::npos && end.text.size() <= 4096);
  return end;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view answers(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool is_first = data[0] % 2 == 0;
  require(meet(answers, is_first, answers.size() + 1) == meet(answers, is_first, 1 + data[0] / 2));
  return 0;
}

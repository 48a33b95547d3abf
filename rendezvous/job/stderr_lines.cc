#include "rendezvous/job/stderr_lines.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "rendezvous/base/text.h"

namespace drun {
namespace {

constexpr std::array kNotes{
    std::string_view("CUDA kernel errors might be "),
    std::string_view("HIP kernel errors might be "),
    std::string_view("For debugging consider passing "),
    std::string_view("Compile with `TORCH_USE_"),
    std::string_view("Search for `cuda"),
    std::string_view("Search for `hip"),
    std::string_view("GPU device may be out of range"),
    std::string_view("Exception raised from "),
};

bool is_in(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '.' || c == '_';
}

// "F1127 07:16:02.272876 1234 file.cc:15] text"
bool is_fatal_of_glog(std::string_view line) {
  return line.size() > 5 && line[0] == 'F' && line[5] == ' ' &&
         std::all_of(line.begin() + 1, line.begin() + 5, is_digit);
}

}  // namespace

std::string_view without_rank_mark(std::string_view line) {
  line = trimmed(line);
  constexpr std::string_view kMark = "[rank";
  while (line.starts_with(kMark)) {
    const std::size_t end = line.find_first_not_of("0123456789", kMark.size());
    if (end == line.npos || end == kMark.size() || !line.substr(end).starts_with("]:")) break;
    line = trimmed(line.substr(end + 2));
  }
  return line;
}

bool is_exception_line(std::string_view line) {
  const auto* const name_end = std::find_if_not(line.begin(), line.end(), is_name_character);
  const auto size = static_cast<std::size_t>(name_end - line.begin());
  if (size == 0 || (size < line.size() && line[size] != ':')) return false;
  if (std::isalpha(static_cast<unsigned char>(line.front())) == 0) return false;
  const std::string_view name = line.substr(0, size);
  if (name.starts_with("nccl")) return false;  // "ncclInternalError: ...", below NCCL's exception
  const std::string_view last = name.substr(name.rfind('.') + 1);
  return last.ends_with("Error") || last.ends_with("Exception") || last.ends_with("Exit") ||
         last.ends_with("Interrupt");
}

bool may_end_traceback(std::string_view line) {
  // "main.<locals>.Stop" is a class in a function.
  const auto is_of_name = [](char c) { return is_name_character(c) || c == '<' || c == '>'; };
  const auto* const end = std::find_if_not(line.begin(), line.end(), is_of_name);
  if (end == line.begin() || line.front() == '<' || line.front() == '>') return false;
  return end == line.end() || *end == ':';
}

bool is_fatal_line(std::string_view line) {
  constexpr std::size_t kLookedAt = 512;
  constexpr std::array kBegins{
      std::string_view("what():"),
      std::string_view("terminate called after throwing"),
      std::string_view("Assertion failed"),
      std::string_view("CUDA error"),
      std::string_view("HIP error"),
      std::string_view("FATAL"),
      std::string_view("Fatal Python error"),
      std::string_view("fatal error: "),
      std::string_view("panic: "),
  };
  if (line.empty()) return false;
  line = line.substr(0, kLookedAt);
  for (const std::string_view begin : kBegins)
    if (line.front() == begin.front() && line.starts_with(begin)) return true;
  if (line.front() == '[') return is_fatal_of_glog(line.substr(1));
  if (is_fatal_of_glog(line)) return true;
  if (line.starts_with("thread '")) return is_in(line, " panicked at ");
  // "a.out: a.c:5: main: Assertion `n > 0' failed.", "/x/Indexing.cu:15: gather: ... Assertion ..."
  const std::size_t blank = line.find(' ');
  return blank != line.npos && blank > 0 && line[blank - 1] == ':' && is_in(line, "Assertion `");
}

bool is_python_warning(std::string_view line) {
  const std::size_t word = line.find("Warning: ");
  if (word == line.npos) return false;
  const std::size_t before = line.substr(0, word).find_last_of(": ");
  return before != line.npos && before >= 2 && line.substr(before - 1, 2) == ": " &&
         is_digit(line[before - 2]);
}

bool is_warning(std::string_view line) {
  if (is_python_warning(line) || is_in(line, " NCCL INFO ")) return true;
  for (const std::string_view level : {"WARNING:", "WARNING ", "Warning: ", "INFO:", "DEBUG:"})
    if (line.starts_with(level)) return true;
  const bool has_bracket = line.starts_with('[');
  const bool has_date = line.size() > 1 && is_digit(line[has_bracket ? 1 : 0]);
  if (has_date)
    for (const std::string_view level : {" WARNING ", "[WARNING]", " INFO ", "[INFO]"})
      if (is_in(line.substr(0, 80), level)) return true;
  const std::size_t end = line.find(']');
  if (end == line.npos) return false;
  std::string_view head = line.substr(has_bracket ? 1 : 0, end - (has_bracket ? 1 : 0));
  if (const std::size_t date = head.find(": "); has_date && date != head.npos)
    head.remove_prefix(date + 2);
  const std::size_t number = head.find_last_not_of("0123456789");
  if (number == head.npos || head[number] != ':' || number + 1 == head.size()) return false;
  const std::size_t day = head.find_first_not_of("0123456789", 1);
  const bool is_level = head[0] == 'W' || head[0] == 'I' || head[0] == 'V';
  return is_level && day != head.npos && head[day] == ' ' && (has_bracket || has_date || day == 5);
}

bool is_note(std::string_view line) {
  return std::any_of(kNotes.begin(), kNotes.end(),
                     [line](std::string_view note) { return line.starts_with(note); });
}

}  // namespace drun

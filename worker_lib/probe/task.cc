#include "worker_lib/probe/task.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace drun::probe {
namespace {

bool read_number(std::string_view text, int& number) {
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  return ec == std::errc() && end == text.data() + text.size() && number >= 0;
}

bool read_word(std::string_view word, Task& task) {
  const std::size_t sign = std::min(word.find('='), word.size());
  const std::string_view name = word.substr(0, sign);
  const std::string_view value = word.substr(std::min(sign + 1, word.size()));
  if (word == "--json") return task.is_json = true;
  if (word == "--quiet") return task.is_quiet = true;
  if (word == "--preflight") return task.is_preflight = true;
  if (name == "--cores") return read_number(value, task.cores);
  if (name == "--gpus") return read_number(value, task.gpus);
  if (name == "--drun-version") return task.version = value, true;
  if (name == "--problem") return task.problem = value, true;
  return false;
}

}  // namespace

Result<Task> parse_task(std::span<const std::string> words) {
  Task task;
  for (const std::string& word : words) {
    if (!read_word(word, task))
      return Error{ErrorCode::Usage, "\"" + word +
                                         "\" makes no sense here; this is what drun doctor starts "
                                         "on every node, and drun of the same version"};
  }
  return task;
}

}  // namespace drun::probe

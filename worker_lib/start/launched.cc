// Reads from the environment whether an agent started this process.
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "drun/process_group.h"

namespace drun {

bool is_launched_by_agent() {
  const char* run_id = std::getenv("TORCHELASTIC_RUN_ID");
  return run_id != nullptr && *run_id != '\0';
}

int get_restart_count() {
  const char* text = std::getenv("TORCHELASTIC_RESTART_COUNT");
  if (text == nullptr || !is_launched_by_agent()) return 0;
  const std::string_view digits = text;
  int count = 0;
  const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  const bool is_number = ec == std::errc() && end == digits.data() + digits.size() && count >= 0;
  return is_number ? count : 0;  // init_process_group() is where a wrong one is an error
}

}  // namespace drun

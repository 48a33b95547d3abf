#include "tests/support/job_traces.h"

#include <filesystem>
#include <sstream>

#include "tests/support/catch.h"

namespace drun::testing {

void check_ends(const std::vector<Running*>& agents, int code, const std::string& words) {
  for (Running* const agent : agents) {
    const Ended ended = agent->wait(40s);
    INFO(ended.err);
    CHECK(ended.code == code);
    CHECK_THAT(ended.err, ContainsSubstring(words));
  }
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

std::string only_entry(const std::string& log_dir) {
  std::vector<std::string> entries;
  for (const auto& entry : std::filesystem::directory_iterator(log_dir))
    entries.push_back(entry.path());
  REQUIRE(entries.size() == 1);
  return entries.front();
}

long peak_kib(pid_t pid) {
  std::istringstream status(read_file("/proc/" + std::to_string(pid) + "/status"));
  for (std::string word; status >> word;) {
    long kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib;
  }
  return 0;
}

}  // namespace drun::testing

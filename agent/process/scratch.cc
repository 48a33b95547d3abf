#include "agent/process/scratch.h"

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "agent/process/guardian.h"

namespace drun::agent {
namespace {

std::string& parent() {
  static std::string directory;
  return directory;
}

}  // namespace

Result<std::string> make_scratch_directory(std::string_view name) {
  std::error_code ec;
  std::vector<std::string> bases;
  if (!parent().empty()) bases.push_back(parent());
  bases.emplace_back("/dev/shm");
  bases.push_back(std::filesystem::temp_directory_path(ec).string());
  int error_number = ENOENT;
  for (const std::string& base : bases) {
    std::string path = base + "/drun_" + std::string(name) + "_XXXXXX";
    if (::mkdtemp(path.data()) != nullptr) {
      remove_if_killed(path);
      return path;
    }
    error_number = errno;
  }
  return system_error("make a directory in /dev/shm or " + bases.back(), error_number);
}

void set_scratch_parent(std::string directory) { parent() = std::move(directory); }

const std::string& scratch_parent() { return parent(); }

}  // namespace drun::agent

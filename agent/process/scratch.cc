#include "agent/process/scratch.h"

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "agent/process/guardian.h"
#include "agent/process/scratch_removal.h"

namespace drun::agent {
namespace {

std::string& parent() {
  static std::string directory;
  return directory;
}

Result<std::string> make_in(const std::string& base, std::string_view name) {
  const std::string pattern = base + "/" + std::string(kScratchPrefix) + std::string(name);
  for (int tries = 0; tries < 3; ++tries) {
    std::string path = pattern + ".XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) break;
    if (own_scratch_directory(path)) {
      remove_if_killed(path);
      return path;
    }
  }
  return system_error("make a directory in " + base, errno);
}

}  // namespace

Result<std::string> make_scratch_directory_in(const std::string& base, std::string_view name) {
  std::error_code ec;
  Result<std::string> made = make_in(std::filesystem::absolute(base, ec).string(), name);
  if (made) remove_abandoned_scratch(base);
  return made;
}

Result<std::string> make_scratch_directory(std::string_view name) {
  for (const std::string& base : {parent(), std::string(kMemoryDirectory)})
    if (!base.empty())
      if (Result<std::string> made = make_in(base, name)) return made;
  std::error_code ec;
  const std::string base = std::filesystem::temp_directory_path(ec).string();
  Result<std::string> made = ec ? system_error("use the temporary directory", ec.value())
                                : make_scratch_directory_in(base, name);
  if (made) return made;
  return with_context(made.error(), std::string("cannot use ") + kMemoryDirectory);
}

void set_scratch_parent(std::string directory) { parent() = std::move(directory); }

const std::string& scratch_parent() { return parent(); }

}  // namespace drun::agent

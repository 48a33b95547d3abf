// Any text in --app=FILE gives either programs, each complete and within the limits, or a usage
// error with a reason.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/cli/parse_programs.h"
#include "launcher/facts/files.h"

namespace {

constexpr std::size_t kMostBytes = 4096;

void require(bool is_true) {
  if (!is_true) std::abort();
}

// Returns the path of an open file with this text.
std::string app_file(std::string_view text) {
  static const int file = ::memfd_create("app", MFD_CLOEXEC);
  require(::ftruncate(file, 0) == 0);
  require(::pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  return "/proc/self/fd/" + std::to_string(file);
}

template <typename Value>
bool is_refused_with_reason(const drun::Result<Value>& result) {
  return !result && result.error().code == drun::ErrorCode::Usage &&
         !result.error().message.empty();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size > kMostBytes) return 0;
  const std::string path = app_file({reinterpret_cast<const char*>(data), size});
  const auto text = drun::all_text_of(path, kMostBytes);
  require(text.has_value());
  const auto lines = drun::parse_app_file(*text);
  require(lines || is_refused_with_reason(lines));
  const std::vector<std::string> words{"drun", "--app=" + path};
  const auto command =
      drun::parse_command_line(words, [](std::string_view) { return std::nullopt; });
  if (!command) {
    require(is_refused_with_reason(command));
    return 0;
  }
  const auto* options = std::get_if<drun::Options>(&*command);
  require(options != nullptr && lines.has_value());
  require(options->programs.size() == lines->size() && !lines->empty());
  require(lines->size() <= drun::kMostPrograms);
  for (const drun::ProgramOptions& program : options->programs)
    require(!program.program.empty() && (program.np || program.nproc_per_node));
  return 0;
}

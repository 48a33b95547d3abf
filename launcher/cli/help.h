// core. How --help looks: a first screen that says what drun does, then options in groups, 80
// columns.
// Thread: any.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace drun {

struct HelpEntry {
  std::string group{};
  std::string names{};  // "-r, --redirects SPEC"
  std::string text{};   // wrapped here; a '\n' in it stays
};

// Groups in the order of their first entry. `head` and `foot` are put around them as they are.
std::string help_text(std::string_view head, std::span<const HelpEntry> entries,
                      std::string_view foot);

// What --help of the launcher says before and after its options.
std::string launcher_help_head(std::string_view invoked_as);
std::string launcher_help_foot();
std::string store_help_head();
std::string status_help_head();
std::string stacks_help_head();
// All of `drun doctor --help`: of the launcher's options those that say where nodes meet.
std::string doctor_help(std::span<const HelpEntry> options);

// What is said to a bare `drun`.
std::string short_usage(std::string_view invoked_as);

// Lines of at most `columns`, broken at spaces, without trailing newline; a longer word stays
// whole.
std::vector<std::string> wrapped(std::string_view text, std::size_t columns);

}  // namespace drun

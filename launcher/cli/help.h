// core. The text of --help, --help-all and drun help, formatted for 80 columns, and the manual
// page.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/arguments.h"

namespace drun {

// Groups in the order of their first option, between `head` and `foot`; without hidden options.
std::string help_text(std::string_view head, std::span<const OptionSyntax> options,
                      std::string_view foot);

// --help: usage, common options and examples.
std::string short_help(std::string_view invoked_as);
// --help-all.
std::string full_help(std::string_view invoked_as, std::span<const OptionSyntax> options);
std::string launcher_help_head(std::string_view invoked_as);

// drun help: the list of topics and commands.
std::string help_topics();
// drun help TOPIC: the topic's options and the page that explains it. Absent: no such topic.
std::optional<std::string> topic_help(std::string_view topic,
                                      std::span<const OptionSyntax> options);

// The helper command that `word` probably means (up to two typing errors), or empty.
std::string_view command_like(std::string_view word);

// What --help of a helper command prints before its options.
std::string_view helper_help_head(std::string_view command);
// drun doctor --help: lists only the launcher's options about nodes and rendezvous.
std::string doctor_help(std::span<const OptionSyntax> options);

// Printed for `drun` without arguments.
std::string short_usage(std::string_view invoked_as);

// The manual page drun(1) in roff (groff_man(7)).
std::string man_page(std::span<const CommandSyntax> commands);

// Lines of at most `columns`, broken at spaces. A longer word is not split.
std::vector<std::string> wrapped(std::string_view text, std::size_t columns);

}  // namespace drun

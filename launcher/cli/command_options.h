// core. The options of drun (launcher_options.cc) and of its helper commands (helper_commands.cc).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/cli/arguments.h"
#include "launcher/cli/completion.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/options.h"

namespace drun {

// --- drun itself: its options, with their groups and texts in the order of --help-all

// Options that print something instead of starting a job.
struct Printed {
  bool help = false;
  bool help_all = false;
  bool version = false;
  std::optional<Shell> completion{};
};

void declare_launcher(OptionTable& table, Options& options, Printed& printed);

// The options that only `drun doctor` has.
void declare_doctor(OptionTable& table, DoctorOptions& doctor);

// --- The helper commands (`drun store`, `drun status` ...): their options, and the syntax of all
// commands, from which completions and the manual page are generated

// nullopt if the first word is not a helper command. `words` is argv without argv[0].
std::optional<Result<Command>> parse_helper_command(std::span<const std::string> words,
                                                    const Lookup& variables);

// The first one is drun itself, the last one `drun doctor`.
std::vector<CommandSyntax> command_syntaxes();

}  // namespace drun

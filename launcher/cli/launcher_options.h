// core. The options of drun itself, with their groups and texts in the order of --help-all.
#pragma once

#include <optional>

#include "launcher/cli/completion.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/options.h"

namespace drun {

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

}  // namespace drun

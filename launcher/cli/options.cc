#include "launcher/cli/options.h"

#include <algorithm>
#include <vector>

#include "launcher/base/build_info.h"
#include "launcher/base/version.h"
#include "launcher/cli/completion.h"
#include "launcher/cli/help.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/option_values.h"
#include "launcher/cli/parse_programs.h"
#include "launcher/facts/files.h"

namespace drun {
namespace {

// mpirun passes its settings in these variables to the processes that it starts.
Result<void> export_mca(HostOptions& hosts) {
  for (const std::string& setting : hosts.mca) {
    if (setting.find('=') == setting.npos || setting.starts_with('='))
      return usage_error("--mca " + setting,
                         "expected a name and a value, such as --mca btl tcp,self");
    hosts.exports.push_back("OMPI_MCA_" + setting);
  }
  return {};
}

Result<void> take_several(Options& options, const Arguments& arguments,
                          const std::vector<OptionSyntax>& known) {
  if (divides(options, arguments)) return take_programs(options, arguments, known);
  if (!options.app) return {};
  const std::optional<std::string> text = whole_text_of(*options.app);
  if (text) return take_app_file(options, arguments, *text, known);
  return Error{ErrorCode::Usage, "--app=" + *options.app +
                                     ": cannot read the file, or it is over 4 MiB; give the path "
                                     "of a text file with one program per line"};
}

}  // namespace

Result<Command> parse_command_line(std::span<const std::string> argv, const Lookup& variables) {
  Options options;
  if (!argv.empty()) options.invoked_as = argv.front().substr(argv.front().rfind('/') + 1);
  const bool is_torchrun = options.invoked_as == "torchrun";
  auto words = argv.empty() ? argv : argv.subspan(1);
  if (words.empty()) return Command(ShowText{short_usage(options.invoked_as), 2});
  if (words.size() == 1 && words.front() == "--from-stdin") return Command(FromStdinCommand{});
  if (words.front() == "--complete")
    return Command(CompleteCommand{{words.begin() + 1, words.end()}});
  if (words.size() == 1 && words.front() == "--print-man")
    return Command(ShowText{man_page(command_syntaxes()), 0});
  if (!is_torchrun) {
    if (auto helper = parse_helper_command(words, variables)) return *std::move(helper);
  }
  const bool is_doctor = !is_torchrun && words.front() == "doctor";
  if (is_doctor) {
    words = words.subspan(1);
    options.doctor.emplace();
  }

  Printed printed;
  OptionTable table(variables);
  if (is_doctor) declare_doctor(table, *options.doctor);
  declare_launcher(table, options, printed);
  Result<Arguments> arguments = table.parse(words);
  if (!arguments) return arguments.error();
  if (printed.help_all || (printed.help && is_doctor)) {
    return Command(ShowText{
        is_doctor ? doctor_help(table.syntax()) : full_help(options.invoked_as, table.syntax()),
        0});
  }
  if (printed.help) return Command(ShowText{short_help(options.invoked_as), 0});
  if (printed.completion) {
    return Command(ShowText{
        completion_script(*printed.completion, options.invoked_as, command_syntaxes()), 0});
  }
  if (printed.version)
    return Command(ShowText{std::string("drun ") + kVersion + " (" + kBuildInfo + ")\n", 0});
  const bool has_program = arguments->program && !arguments->program->empty();
  if (!has_program && !is_doctor && !options.app) {
    return Error{ErrorCode::Usage, "no program to start; write it after the options: " +
                                       options.invoked_as + " [options] program [args...]"};
  }
  options.sources = table.sources();
  if (Result<void> taken = export_mca(options.hosts); !taken) return taken.error();
  options.program = arguments->program.value_or("");
  options.program_arguments = own_arguments(arguments->program_arguments, is_torchrun);
  if (Result<void> taken = take_several(options, *arguments, table.syntax()); !taken)
    return taken.error();
  if (!options.log_level) {
    if (const auto level = variables("LOGLEVEL"))
      if (const Result<LogLevel> parsed = parse_word<kLogLevelWords>(*level))
        options.log_level = *parsed;
  }
  if (is_doctor) return Command(doctor_options(std::move(options)));
  return Command(std::move(options));
}

Options doctor_options(Options options) {
  if (!options.hosts.names_hosts()) {  // with hosts, it may determine which are used
    options.nproc_per_node = WorkerCount(1);
    options.sources["--nproc-per-node"] = "drun doctor";
    options.hosts.np.reset();
    options.hosts.map_by.reset();
  }
  options.max_restarts.reset();
  options.restart = {};
  options.checkpoint_directory.reset();
  options.exclude_after.reset();
  options.exclude_slow = false;
  options.preflight = false;
  options.hang_timeout.reset();
  options.preload.clear();
  options.preload_timeout.reset();
  options.store = StoreHost::Agent;
  options.stdin_source = StdinSource::DevNull;
  options.pass_local_rank = options.virtual_local_rank = false;
  options.bind_to.reset();
  options.numa_binding.reset();
  options.bind_memory.reset();
  options.gpus_per_worker.reset();
  options.omp_threads.reset();
  options.wrap.reset();
  options.wrap_ranks.reset();
  options.output = OutputMode::Lines;
  options.redirects = options.tee = {};
  options.log_dir = "/dev/null";
  options.local_ranks_filter.reset();
  options.reports.clear();
  options.events.reset();
  options.inject = {};
  options.metrics.reset();
  options.exit_code = ExitCodeStyle::Drun;
  return options;
}

Error usage_error(const std::string& what, const std::string& reason) {
  return Error{ErrorCode::Usage, what + ": " + reason};
}

}  // namespace drun

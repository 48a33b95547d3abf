#include "launcher/plan/lines_home.h"

#include "launcher/cli/option_values.h"
#include "launcher/plan/plan.h"

namespace drun::hosts {
namespace {

bool has_streams(const StreamChoice& choice) { return choice.all != 0 || !choice.of_ranks.empty(); }

bool has_directory(const Options& options) {
  return options.log_dir && !options.log_dir->empty() && *options.log_dir != "/dev/null";
}

bool has_filters(const Options& options) {
  return !options.duplicate_stdout_filters.empty() || !options.duplicate_stderr_filters.empty();
}

Result<void> check_lines_home(const Options& options) {
  const bool gathers = options.gather_logs;
  if (gathers && options.hosts.leaves_logs_there)
    return usage_error("--gather-logs and --no-gather-logs", "they conflict; remove one");
  if (gathers && has_filters(options))
    return usage_error("--duplicate-stdout-filters, --duplicate-stderr-filters",
                       "they cannot be combined with --gather-logs; search its log files instead");
  return {};
}

}  // namespace

bool gathers_here(const Options& options) {
  if (options.hosts.leaves_logs_there || options.doctor) return false;
  if (options.hosts.local_nodes && !options.gather_logs) return false;  // one folder per node
  if (has_directory(options)) return !has_filters(options);
  const bool is_nowhere = options.log_dir == "/dev/null";
  return options.gather_logs && !is_nowhere &&
         (has_streams(options.redirects) || has_streams(options.tee));
}

Result<std::optional<OutputSpec>> plan_lines_home(const Options& options, const HostFacts& host) {
  if (Result<void> fits = check_lines_home(options); !fits) return fits.error();
  if (!gathers_here(options)) return std::optional<OutputSpec>();
  OutputSpec spec;
  spec.mode = options.sources.contains("--output") ? options.output : OutputMode::Labeled;
  spec.has_timestamps = options.timestamps;
  spec.gathers = true;
  spec.label_template = options.programs.empty() ? kHostLabel : kHostRoleLabel;
  if (const auto label = chosen_label(options, host)) spec.label_template = *label;
  if (!has_directory(options)) return std::optional(spec);
  const bool is_whole = options.log_dir->starts_with('/') || host.working_directory.empty();
  spec.log_dir = is_whole ? *options.log_dir : host.working_directory + "/" + *options.log_dir;
  return std::optional(spec);
}

}  // namespace drun::hosts

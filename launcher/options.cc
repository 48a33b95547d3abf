#include "launcher/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <set>

#include "launcher/arguments.h"
#include "launcher/help.h"
#include "launcher/option_values.h"
#include "launcher/version.h"

namespace drun {
namespace {

using Value = KnownOption::Value;

std::string underscored(std::string name) {
  std::replace(name.begin() + 2, name.end(), '-', '_');
  return name;
}

std::string variable_name(const std::string& option) {
  std::string name = "PET_" + underscored(option).substr(2);
  for (char& c : name) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return name;
}

// What CLI11 does not keep about an option.
struct Traits {
  bool is_torchruns = true;
  bool has_variable = true;
};

// Options under construction: CLI11's table, with our grammar in front of it and our help behind.
class Table {
 public:
  explicit Table(const Lookup& variables) : variables_(variables) {
    app_.set_help_flag();
    app_.config_formatter(std::make_shared<CLI::ConfigTOML>());
    app_.allow_config_extras(false);
  }

  void group(std::string title) { group_ = std::move(title); }

  template <typename Field, typename T>
  CLI::Option* value(const char* names, Field& field, Result<T> (*read)(std::string_view),
                     const char* type, const char* text, Traits traits = {}) {
    return value(
        names, [&field](T parsed) { field = std::move(parsed); }, read, type, text, traits);
  }

  template <typename T>
  CLI::Option* value(const char* names, std::type_identity_t<std::function<void(T)>> set,
                     Result<T> (*read)(std::string_view), const char* type, const char* text,
                     Traits traits = {}) {
    const std::string name = long_name(names);
    const auto take = [this, name, set, read](std::string given) {
      // An array of a configuration file arrives joined by newlines.
      std::replace(given.begin(), given.end(), '\n', ',');
      Result<T> parsed = read(given);
      if (!parsed) throw CLI::ValidationError(shown(name, given), parsed.error().message);
      set(*std::move(parsed));
    };
    CLI::Option* option = app_.add_option_function<std::string>(twins(names), take, text);
    option->type_name(type)->multi_option_policy(CLI::MultiOptionPolicy::Join);
    return keep(option, traits);
  }

  CLI::Option* flag(const char* names, bool& field, const char* text, Traits traits = {}) {
    return keep(app_.add_flag(twins(names), field, text), traits);
  }

  // `words` as given on the command line. Afterwards the fields hold what was asked for.
  Result<Arguments> parse(std::span<const std::string> words);

  std::vector<HelpEntry> help() const;
  CLI::App& app() { return app_; }
  CLI::Option* keep(CLI::Option* option, Traits traits) {
    option->group(group_);
    traits_[option] = traits;
    return option;
  }

 private:
  // "-t,--tee" -> "--tee".
  static std::string long_name(const std::string& names) { return names.substr(names.find("--")); }
  // "-x,--a-b" -> "-x,--a-b,--a_b".
  static std::string twins(const std::string& names) {
    const std::string name = long_name(names);
    const std::string twin = underscored(name);
    return twin == name ? names : names + "," + twin;
  }
  std::string shown(const std::string& name, const std::string& value) const {
    if (const auto from = from_variables_.find(name); from != from_variables_.end())
      return variable_name(name) + "=" + value;
    if (given_.contains(name)) return name + "=" + value;
    return config_file_ + ": " + name.substr(2) + " = " + value;
  }
  std::vector<KnownOption> known() const;
  Result<void> take_variables(std::vector<std::string>& words);
  Result<void> parse_with_library(std::vector<std::string> words);

  const Lookup& variables_;
  CLI::App app_;
  std::string group_;
  std::map<const CLI::Option*, Traits> traits_;
  std::set<std::string> given_;           // canonical names on the command line
  std::set<std::string> from_variables_;  // canonical names taken from PET_ variables
  std::string config_file_;
};

std::vector<KnownOption> Table::known() const {
  std::vector<KnownOption> known;
  for (const auto& [option, traits] : traits_) {
    const bool is_flag = option->get_items_expected_max() == 0;
    const bool may_lack_value = option->get_items_expected_min() == 0;
    const auto& letters = option->get_snames();
    known.push_back({.name = "--" + option->get_lnames().front(),
                     .letter = letters.empty() ? '\0' : letters.front().front(),
                     .value = is_flag          ? Value::None
                              : may_lack_value ? Value::MayFollow
                                               : Value::Needed,
                     .is_torchruns = traits.is_torchruns});
  }
  return known;
}

Result<void> Table::take_variables(std::vector<std::string>& words) {
  for (const auto& [option, traits] : traits_) {
    const std::string name = "--" + option->get_lnames().front();
    if (!traits.has_variable || given_.contains(name)) continue;
    const std::optional<std::string> value = variables_(variable_name(name));
    if (!value || value->empty()) continue;
    from_variables_.insert(name);
    if (option->get_items_expected_max() > 0) {
      words.insert(words.end(), {name, *value});
      continue;
    }
    const Result<bool> is_on = parse_switch(*value);
    if (!is_on) return with_context(is_on.error(), shown(name, *value));
    words.push_back(name + (*is_on ? "=true" : "=false"));
  }
  return {};
}

Result<Arguments> Table::parse(std::span<const std::string> words) {
  Result<Arguments> arguments = split_arguments(words, known());
  if (!arguments) return arguments;
  std::map<std::string, std::optional<std::string>> last;  // of repeated options, as argparse
  for (const GivenOption& given : arguments->options) last[given.name] = given.value;
  std::vector<std::string> canonical;
  for (const auto& [name, value] : last) {
    given_.insert(name);
    canonical.push_back(name);
    const CLI::Option* option = app_.get_option(name);
    if (option->get_items_expected_max() > 0) canonical.push_back(value.value_or(""));
  }
  if (Result<void> taken = take_variables(canonical); !taken) return taken.error();
  if (const auto config = last.find("--config"); config != last.end())
    config_file_ = config->second.value_or("");
  if (Result<void> parsed = parse_with_library(std::move(canonical)); !parsed)
    return parsed.error();
  return arguments;
}

Result<void> Table::parse_with_library(std::vector<std::string> words) {
  constexpr std::string_view kUnknownKey = "INI was not able to parse ";
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  try {
    app_.parse(std::move(words));
    return {};
  } catch (const CLI::FileError&) {
    return Error{ErrorCode::Usage, "--config=" + config_file_ +
                                       ": no such file, or not readable; write the path of a "
                                       "TOML file"};
  } catch (const CLI::ConfigError& error) {
    std::string reason = error.what();
    if (reason.starts_with(kUnknownKey)) {
      reason = "\"" + reason.substr(kUnknownKey.size()) +
               "\" is no option; write NAME = VALUE lines with the names that --help shows";
    }
    return Error{ErrorCode::Usage, "--config=" + config_file_ + ": " + reason};
  } catch (const CLI::ValidationError& error) {
    return Error{ErrorCode::Usage, error.what()};
  } catch (const std::exception& error) {
    const std::string place = config_file_.empty() ? "" : "--config=" + config_file_ + ": ";
    return Error{ErrorCode::Usage, place + error.what()};
  }
}

std::vector<HelpEntry> Table::help() const {
  std::vector<HelpEntry> entries;
  for (const CLI::Option* option : app_.get_options()) {
    const auto& letters = option->get_snames();
    std::string names = letters.empty() ? "    " : "-" + letters.front() + ", ";
    names += "--" + option->get_lnames().front();
    if (option->get_items_expected_max() > 0) {
      names += (option->get_items_expected_min() == 0 ? "[=" : " ") + option->get_type_name() +
               (option->get_items_expected_min() == 0 ? "]" : "");
    }
    entries.push_back({option->get_group(), names, option->get_description()});
  }
  return entries;
}

constexpr Traits kOwn{.is_torchruns = false, .has_variable = true};
constexpr Traits kOwnWithoutVariable{.is_torchruns = false, .has_variable = false};
constexpr Traits kWithoutVariable{.is_torchruns = true, .has_variable = false};

void declare_job(Table& table, Options& options) {
  table.group("The job");
  table.value("--nnodes", options.nnodes, parse_nodes, "N", "nodes in the job (1)");
  table.value("--nproc-per-node", options.nproc_per_node, parse_workers, "N|auto|cpu|gpu",
              "workers on this node (1); auto: one a GPU, else one a core");
  table.value("--node-rank", options.node_rank, parse_rank, "N", "which node this is (0)");
  table.value("--master-addr", options.master_addr, parse_text, "HOST",
              "node 0: name or address, as the others reach it (127.0.0.1)");
  table.value("--master-port", options.master_port, parse_port, "P",
              "the one port of the job, on node 0 (29500; one node alone: any free one)");
  table.flag("--standalone", options.standalone, "one node, any free port, a random run id");
  table.value("--max-restarts", options.max_restarts, parse_count, "N",
              "times that a failed job is begun again, counted once for all nodes (0)");
  table.value("--rdzv-id", options.rdzv_id, parse_text, "ID",
              "run id, the same on all nodes (none)");
  table.value("--rdzv-backend", options.rdzv_backend, parse_text, "NAME",
              "static or c10d (static)");
  table.value("--rdzv-endpoint", options.rdzv_endpoint, parse_text, "HOST[:P]",
              "where the nodes meet, instead of --master-addr and --master-port");
  table.value("--rdzv-conf", options.rdzv_conf, parse_pairs, "K=V,...",
              "join_timeout=S: wait for missing nodes (900); keep_alive_interval=S and "
              "keep_alive_max_attempt=N: when a silent node is lost (5, 3)");
  table.value("--role", options.role, parse_text, "NAME", "ROLE_NAME of the workers (default)");
}

void declare_program(Table& table, Options& options) {
  table.group("The program");
  table.flag("-m,--module", options.module, "the program is a Python module");
  table.flag("--no-python", options.no_python, "execute the program even if it ends in .py");
  table.flag("--pass-local-rank", options.pass_local_rank,
             "put --local-rank=N in front of the program's arguments", kOwn);
  table.flag("--virtual-local-rank", options.virtual_local_rank,
             "LOCAL_RANK=0 for every worker, and one device each in CUDA_VISIBLE_DEVICES");
  table.value("--stdin", options.stdin_source, parse_stdin, "none|rank0",
              "who reads drun's standard input (none)", kOwn);
  table.value("--store", options.store, parse_store, "agent|worker",
              "who serves the TCPStore on the master port: drun, or the program's rank 0; then "
              "drun meets on --rdzv-endpoint, port 29400 (agent)",
              kOwn);
}

void declare_placement(Table& table, Options& options) {
  table.group("Placement");
  table.value("--bind-to", options.bind_to, parse_bind_to, "WHAT",
              "none; core: one core each; socket, numa: where that core is; gpu: the NUMA node of "
              "its GPUs (none)",
              kOwn);
  table.value("--numa-binding", options.numa_binding, parse_numa_binding, "MODE",
              "node, socket, exclusive (a share of the node's cores) or core-complex: those of the "
              "GPU numbered as the local rank",
              kWithoutVariable);
  table.value("--bind-memory", options.bind_memory, parse_memory_policy, "none|prefer|strict",
              "whether bound workers' memory comes from their NUMA nodes (prefer)", kOwn);
  table.value("--gpus-per-worker", options.gpus_per_worker, parse_positive, "N",
              "each worker sees N GPUs of its own in CUDA_VISIBLE_DEVICES", kOwn);
  table.value("--omp-threads", options.omp_threads, parse_omp_threads, "N|auto",
              "OMP_NUM_THREADS; auto: a worker's share of its cores (as inherited, else 1 when "
              "there are several workers)",
              kOwn);
  table.value("--wrap", options.wrap, parse_command, "COMMAND",
              "start the program through this, such as 'gdb -batch -ex run -ex bt --args'; "
              "${rank} and ${local_rank} in it are filled in",
              kOwn);
  table.value("--wrap-ranks", options.wrap_ranks, parse_global_ranks, "0,3",
              "only around these ranks (all)", kOwn);
}

void declare_output(Table& table, Options& options) {
  table.group("Output (SPEC: 0 none, 1 stdout, 2 stderr, 3 both; or by local rank, 0:3,12:1)");
  table.value("--output", options.output, parse_output, "MODE",
              "lines: whole lines; labelled: with the worker's label in front; raw: workers write "
              "to drun's own descriptors (lines)",
              kOwn);
  table.value("-r,--redirects", options.redirects, parse_streams, "SPEC", "to files only");
  table.value("-t,--tee", options.tee, parse_streams, "SPEC",
              "to files, and labelled to the console");
  table.value("--log-dir", options.log_dir, parse_text, "DIR",
              "where those files go (a temporary folder; /dev/null: none)");
  table.value("--local-ranks-filter", options.local_ranks_filter, parse_ranks, "0,2",
              "only these workers on the console");
  table.value("--duplicate-stdout-filters", options.duplicate_stdout_filters, parse_words, "A,B",
              "teed lines with one of these words go to filtered_stdout.log too");
  table.value("--duplicate-stderr-filters", options.duplicate_stderr_filters, parse_words, "A,B",
              "the same for stderr");
}

void declare_end(Table& table, Options& options) {
  table.group("The end");
  table.value("--signals-to-handle", options.signals_to_handle, parse_words, "A,B",
              "signals that end the job (SIGTERM,SIGINT,SIGHUP,SIGQUIT)");
  table.value("--shutdown-timeout", options.shutdown_timeout, parse_seconds, "S",
              "from SIGTERM to SIGKILL, for all workers together (30)");
  table.value("--report", options.report, parse_text, "FILE", "write the outcome there as JSON",
              kOwn);
  table.value("--exit-code", options.exit_code, parse_exit_code_style, "drun|torchrun",
              "torchrun: 1 for every failure (drun)", kOwn);
}

void declare_accepted(Table& table, Options& options) {
  const auto drop = [](auto&&) {};
  table.group("Taken as torchrun takes them, without effect here");
  table.flag("--run-path", options.run_path, "the program is a Python script");
  table.value<std::chrono::milliseconds>("--monitor-interval", drop, parse_interval, "S",
                                         "drun does not poll");
  table.value<std::string>("--start-method", drop, parse_text, "NAME", "workers are programs");
  table.value<std::string>("--event-log-handler", drop, parse_text, "NAME", "drun keeps no events");
  table.value("--local-addr", options.local_addr, parse_text, "ADDR",
              "addresses come from --master-addr");
  table.value<std::string>("--logs-specs", drop, parse_logs_specs, "default", "no plug-ins",
                           kWithoutVariable);
}

// Help and version are looked for by name: nothing is stored.
void declare_drun(Table& table, Options& options) {
  table.group("drun itself");
  table
      .value("--dry-run", options.dry_run, parse_dry_run, "json",
             "print the plan and stop: nodes, ranks, environment, command", kOwnWithoutVariable)
      ->expected(0, 1)
      ->configurable(false);
  CLI::Option* config = table.app().set_config("--config", "", "options from a TOML file");
  table.keep(config->type_name("FILE")->configurable(false), kOwnWithoutVariable);
  table.value("--log-level", options.log_level, parse_log_level, "LEVEL",
              "of drun's own lines: debug, info, warning, error; else LOGLEVEL (info)", kOwn);
}

void declare_help(Table& table, bool& help, bool& version) {
  table.flag("--version", version, "print the version", kOwnWithoutVariable)->configurable(false);
  table.flag("-h,--help", help, "print this", kWithoutVariable)->configurable(false);
}

Result<Command> parse_store_command(std::span<const std::string> words, const Lookup& variables) {
  StoreCommand store;
  bool help = false;
  Table table(variables);
  table.group("Options");
  table.value<int>(
      "--port", [&store](int port) { store.port = static_cast<std::uint16_t>(port); }, parse_port,
      "P", "where to listen (29500; 0: any free one, which is printed)", kOwnWithoutVariable);
  table.flag("--loopback", store.is_loopback_only, "listen on 127.0.0.1 and ::1 alone",
             kOwnWithoutVariable);
  table.flag("-h,--help", help, "print this", kOwnWithoutVariable);
  const Result<Arguments> arguments = table.parse(words);
  if (!arguments) return with_context(arguments.error(), "store");
  if (help) return Command(ShowText{help_text(store_help_head(), table.help(), ""), 0});
  if (arguments->program) {
    return Error{ErrorCode::Usage, "store: \"" + *arguments->program +
                                       "\" is too much; to run a program of the name store, "
                                       "write drun -- store"};
  }
  return Command(store);
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// The words after the program, as the program shall see them. torchrun drops a `--` that stands
// first there, and scripts are written that way because of it; drun itself leaves every word alone.
std::vector<std::string> own_arguments(std::vector<std::string> words, bool is_torchrun) {
  if (is_torchrun && !words.empty() && words.front() == "--") words.erase(words.begin());
  return words;
}

}  // namespace

Result<Command> parse_command_line(std::span<const std::string> argv, const Lookup& variables) {
  Options options;
  if (!argv.empty()) options.invoked_as = base_name(argv.front());
  const bool is_torchrun = options.invoked_as == "torchrun";
  const auto words = argv.empty() ? argv : argv.subspan(1);
  if (words.empty()) return Command(ShowText{short_usage(options.invoked_as), 2});
  if (!is_torchrun && words.front() == "store")
    return parse_store_command(words.subspan(1), variables);

  bool help = false;
  bool version = false;
  Table table(variables);
  declare_job(table, options);
  declare_program(table, options);
  declare_placement(table, options);
  declare_output(table, options);
  declare_end(table, options);
  declare_drun(table, options);
  declare_help(table, help, version);
  declare_accepted(table, options);
  Result<Arguments> arguments = table.parse(words);
  if (!arguments) return arguments.error();
  if (help) {
    return Command(ShowText{
        help_text(launcher_help_head(options.invoked_as), table.help(), launcher_help_foot()), 0});
  }
  if (version) return Command(ShowText{std::string("drun ") + kVersion + "\n", 0});
  if (!arguments->program || arguments->program->empty()) {
    return Error{ErrorCode::Usage, "no program to start; write it after the options: " +
                                       options.invoked_as + " [option...] program [argument...]"};
  }
  options.program = *std::move(arguments->program);
  options.program_arguments = own_arguments(std::move(arguments->program_arguments), is_torchrun);
  if (!options.log_level) {
    if (const auto level = variables("LOGLEVEL"))
      if (const Result<LogLevel> parsed = parse_log_level(*level)) options.log_level = *parsed;
  }
  return Command(std::move(options));
}

}  // namespace drun

// core. Parses option values. The formats are torchrun's, with ranks of any number of digits.
//
// Errors:  Usage, as "reason; remedy"; the caller adds the prefix "--option=value: ".
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/cli/options.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/join_spec.h"

namespace drun {

inline constexpr int kMostNodes = 1 << 20;
inline constexpr int kMostWorkers = 1 << 16;  // per node

Result<std::string> parse_text(std::string_view text);        // any text
Result<std::string> parse_separator(std::string_view text);   // one word
Result<NodeRange> parse_nodes(std::string_view text);         // "4", "2:4"
Result<LocalNodes> parse_local_nodes(std::string_view text);  // "3", "2:4", "3,netns"
Result<WorkerCount> parse_workers(std::string_view text);
Result<int> parse_rank(std::string_view text);
Result<int> parse_port(std::string_view text);  // 0 to 65535
// "9464", "0.0.0.0:9464", "[::1]:0"; without an address the host is 127.0.0.1.
Result<Endpoint> parse_metrics_port(std::string_view text);
Result<int> parse_count(std::string_view text);                           // 0 or more
Result<std::chrono::milliseconds> parse_seconds(std::string_view text);   // "30", "0.5"; 0 or more
Result<std::chrono::milliseconds> parse_interval(std::string_view text);  // the same, above 0
Result<StreamChoice> parse_streams(std::string_view text);                // "3", "0:1,12:3"
Result<std::vector<int>> parse_ranks(std::string_view text);              // "0,2"
Result<RankRanges> parse_rank_ranges(std::string_view text);              // "0-3,8"
Result<std::string> parse_pattern(std::string_view text);  // a POSIX extended regular expression
Result<std::vector<std::string>> parse_words(std::string_view text);  // "A,B"; ",," is a comma
// "a=1,b=2", also with quotes around the whole text or a value.
Result<std::vector<std::pair<std::string, std::string>>> parse_pairs(std::string_view text);
Result<bool> parse_switch(std::string_view text);  // PET_ variables of flags: whole numbers
Result<StoreHost> parse_store(std::string_view text);
Result<OutputMode> parse_output(std::string_view text);
Result<LeftoverPolicy> parse_leftovers(std::string_view text);
Result<StdinSource> parse_stdin(std::string_view text);
Result<ExitCodeStyle> parse_exit_code_style(std::string_view text);
Result<EngineChoice> parse_engine(std::string_view text);
Result<DryRun> parse_dry_run(std::string_view text);  // empty means text
Result<LogLevel> parse_log_level(std::string_view text);
Result<BindTo> parse_bind_to(std::string_view text);       // "none", "core", ... "gpu"
Result<BindTo> parse_numa_binding(std::string_view text);  // "node", ... "core-complex"
Result<MemoryPolicy> parse_memory_policy(std::string_view text);
Result<int> parse_positive(std::string_view text);                   // 1 or more
Result<OmpThreads> parse_omp_threads(std::string_view text);         // "auto", "4"
Result<std::vector<int>> parse_global_ranks(std::string_view text);  // "0,3"; at least one
// Splits text into words as a shell does. Handles quotes and backslashes, and expands nothing.
Result<std::vector<std::string>> parse_command(std::string_view text);
Result<MapBy> parse_map_by(std::string_view text);            // "slot", "node", "ppr:2:node"
Result<std::string> parse_logs_specs(std::string_view text);  // only "default"

// The word for a value, as parsed above; empty if it has none.
std::string_view option_word(OutputMode mode);
std::string_view option_word(LeftoverPolicy policy);
std::string_view option_word(StdinSource source);
std::string_view bind_to_word(BindTo bind_to);
std::string_view numa_binding_word(BindTo bind_to);

// --- Restarts and elastic worlds. Errors as above.

// "3", "3/1h", "3/progress".
struct RestartBudget {
  int most = 0;
  std::chrono::milliseconds window{0};  // 0: the whole job
  bool per_progress = false;
  bool operator==(const RestartBudget&) const = default;
};
// "5", "5:300".
struct RestartPause {
  std::chrono::milliseconds first{0};
  std::optional<std::chrono::milliseconds> most{};
  bool operator==(const RestartPause&) const = default;
};

Result<RestartBudget> parse_restarts(std::string_view text);
Result<RestartPause> parse_pause(std::string_view text);
// "90", "90s", "30m", "1h", "2d"; Slurm's "HH:MM:SS", "D-HH", "D-HH:MM" and "D-HH:MM:SS". Above 0.
Result<std::chrono::milliseconds> parse_time_limit(std::string_view text);
Result<SignalBefore> parse_signal_before(std::string_view text);
Result<ExitKinds> parse_exit_kinds(std::string_view text);  // "1,42,SIGKILL"
Result<RankOrder> parse_rank_order(std::string_view text);

// 9 for "SIGKILL" and "KILL"; nullopt for an unknown name.
std::optional<int> signal_number(std::string_view name);

// --- Memory sizes (--store-memory). Errors: Usage, with the reason only.

// An integer number of bytes, or with a suffix K, M, G or T (powers of 1024; KiB and KB are
// equivalent; any case). From 1MiB to 1024TiB.
Result<std::size_t> parse_memory_size(std::string_view text);

// "1GiB", "1536MiB", "1048577 bytes".
std::string memory_size_text(std::size_t bytes);

}  // namespace drun

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

#include "launcher/base/text.h"
#include "launcher/cli/options.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/text.h"
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
Result<bool> parse_switch(std::string_view text);     // PET_ variables of flags: whole numbers
Result<DryRun> parse_dry_run(std::string_view text);  // empty means text
Result<int> parse_positive(std::string_view text);    // 1 or more
Result<OmpThreads> parse_omp_threads(std::string_view text);         // "auto", "4"
Result<std::vector<int>> parse_global_ranks(std::string_view text);  // "0,3"; at least one
// Splits text into words as a shell does. Handles quotes and backslashes, and expands nothing.
Result<std::vector<std::string>> parse_command(std::string_view text);
Result<MapBy> parse_map_by(std::string_view text);            // "slot", "node", "ppr:2:node"
Result<std::string> parse_logs_specs(std::string_view text);  // only "default"

// --- Options whose value is one of several words
//
// The first word of a value is its name; the others are synonyms.

template <typename T>
struct OptionWord {
  std::string_view word;
  T value;
};

inline constexpr OptionWord<StoreHost> kStoreWords[] = {{"agent", StoreHost::Agent},
                                                        {"worker", StoreHost::Worker}};
inline constexpr OptionWord<OutputMode> kOutputWords[] = {{"lines", OutputMode::Lines},
                                                          {"labelled", OutputMode::Labeled},
                                                          {"json", OutputMode::Json},
                                                          {"raw", OutputMode::Raw}};
inline constexpr OptionWord<LeftoverPolicy> kLeftoverWords[] = {
    {"wait", LeftoverPolicy::Wait}, {"kill", LeftoverPolicy::Kill}, {"keep", LeftoverPolicy::Keep}};
inline constexpr OptionWord<StdinSource> kStdinWords[] = {{"none", StdinSource::DevNull},
                                                          {"rank0", StdinSource::Rank0}};
inline constexpr OptionWord<ExitCodeStyle> kExitCodeWords[] = {
    {"drun", ExitCodeStyle::Drun}, {"torchrun", ExitCodeStyle::Torchrun}};
inline constexpr OptionWord<EngineChoice> kEngineWords[] = {{"auto", EngineChoice::Auto},
                                                            {"none", EngineChoice::None}};
inline constexpr OptionWord<DryRun> kDryRunWords[] = {{"text", DryRun::Text},
                                                      {"json", DryRun::Json}};
inline constexpr OptionWord<LogLevel> kLogLevelWords[] = {
    {"debug", LogLevel::Debug}, {"info", LogLevel::Info},    {"warning", LogLevel::Warning},
    {"error", LogLevel::Error}, {"warn", LogLevel::Warning}, {"critical", LogLevel::Error}};
inline constexpr OptionWord<BindTo> kBindToWords[] = {
    {"none", BindTo::None}, {"core", BindTo::Core},   {"socket", BindTo::Socket},
    {"numa", BindTo::Numa}, {"gpu", BindTo::GpuNode}, {"package", BindTo::Socket}};
inline constexpr OptionWord<BindTo> kNumaBindingWords[] = {
    {"node", BindTo::GpuNode},
    {"socket", BindTo::GpuSocket},
    {"exclusive", BindTo::GpuExclusive},
    {"core-complex", BindTo::GpuCoreComplex}};
inline constexpr OptionWord<MemoryPolicy> kMemoryPolicyWords[] = {{"none", MemoryPolicy::None},
                                                                  {"prefer", MemoryPolicy::Prefer},
                                                                  {"strict", MemoryPolicy::Strict}};
inline constexpr OptionWord<RankOrder> kRankOrderWords[] = {{"endpoint", RankOrder::Endpoint},
                                                            {"natural", RankOrder::Natural},
                                                            {"arrival", RankOrder::Arrival}};

// The value of a word of the table, in any case.
template <const auto& kWords>
auto parse_word(std::string_view text) -> Result<decltype(kWords[0].value)> {
  const std::string lower = lower_case(trimmed(text));
  for (const auto& each : kWords)
    if (each.word == lower) return each.value;
  const auto word_of = [](const auto& each) { return each.word; };
  return Error{ErrorCode::Usage, "expected one of " + joined(kWords, ", ", word_of)};
}

// The name of a value; empty if it has none.
template <typename T, std::size_t kCount>
std::string_view option_word(const OptionWord<T> (&words)[kCount], T value) {
  for (const OptionWord<T>& each : words)
    if (each.value == value) return each.word;
  return "";
}

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

// 9 for "SIGKILL" and "KILL"; nullopt for an unknown name.
std::optional<int> signal_number(std::string_view name);

// --- Memory sizes (--store-memory). Errors: Usage, with the reason only.

// An integer number of bytes, or with a suffix K, M, G or T (powers of 1024; KiB and KB are
// equivalent; any case). From 1MiB to 1024TiB.
Result<std::size_t> parse_memory_size(std::string_view text);

// "1GiB", "1536MiB", "1048577 bytes".
std::string memory_size_text(std::size_t bytes);

}  // namespace drun

// core. PyTorch's Flight Recorder: the last collective calls of a rank, as its dump has them, and
// a comparison of the dumps of several ranks.
//
// A dump is what torch writes to a file when a collective times out (TORCH_FR_DUMP_TEMP_FILE,
// TORCH_NCCL_DEBUG_INFO_TEMP_FILE), and what torch._C._distributed_c10d._dump_fr_trace returns.
// Versions 2.x of its schema are read. Anything in a dump may be missing or wrong.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "agent/diagnosis/diagnosis.h"
#include "rendezvous/base/result.h"

namespace drun::agent {

constexpr std::size_t kMostFlightEntries = 20'000;  // the newest; torch keeps 2000 by default

enum class CallState : std::uint8_t { Scheduled, Started, Completed };

// One call of a collective. Sends and receives are left out.
struct FlightCall {
  std::string group{};      // the name of its process group
  std::int64_t number = 0;  // counts the group's calls
  std::string op{};         // "all_reduce"
  std::string sizes{};      // of the inputs: "[4, 3]"
  std::string types{};      // "Float"
  CallState state = CallState::Scheduled;
  std::string place{};  // "train.py:33 in step"; the innermost frame outside of torch
  bool operator==(const FlightCall&) const = default;
};

struct FlightGroup {
  std::string description{};  // "default_pg"
  RankRanges ranks{};         // empty: not known
  bool operator==(const FlightGroup&) const = default;
};

struct FlightDump {
  int rank = 0;
  std::string version{};
  std::map<std::string, FlightGroup> groups{};
  std::vector<FlightCall> calls{};  // oldest first
  bool operator==(const FlightDump&) const = default;
};

// Errors: Refused.
Result<FlightDump> read_flight_dump(int rank, std::string_view pickled);

// The same from the JSON of torch's control server, which has no source lines. Errors: Refused.
Result<FlightDump> read_flight_json(int rank, std::string_view json);

// The part of a dump that the evidence of a hang carries: of the groups with the newest calls, the
// last completed calls and those that wait, one on a line.
std::vector<std::string> flight_lines(const FlightDump& dump);
bool is_flight_line(std::string_view line);
// Reads the lines of flight_lines() among others. Types are then part of the sizes.
FlightDump flight_dump_of(int rank, const std::vector<std::string>& lines);

// The first call in which the ranks differ: in the operation or the sizes (Desync), or that some
// have not made or not started while others wait in it (MissingRank). None: there is no such call.
// `dumps` of one job, in any order; of a rank the first one counts.
Diagnosis diagnose_calls(const std::vector<FlightDump>& dumps);

}  // namespace drun::agent

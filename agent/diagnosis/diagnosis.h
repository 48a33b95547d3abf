// core. One diagnosis for the end of a job: the class of the fault, the ranks that caused it (not
// those that only saw a peer fail), the evidence, and what to do.
//
// Texts of workers are untrusted: only the ends of long ones are read, and evidence is cut. It may
// contain any bytes; reports escape it.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/stacks/evidence.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/job/restart_policy.h"

namespace drun::agent {

enum class FaultClass {
  None,         // the job succeeded, or nothing is known
  Crash,        // the program failed by itself
  HostMemory,   // out of memory on the host
  GpuMemory,    // out of memory on a GPU
  Desync,       // ranks made different collective calls, or with different shapes
  MissingRank,  // a rank did not arrive in the collective that the others wait in
  DataLoader,   // a rank waits for data, or a process that loads data ended
  Network,      // no connection, or a lost one, without a worker that ended; or a lost node
  Hardware,     // a GPU, its memory, or the host's
  UserError,    // the program cannot start as it was called
  Hang,         // workers hang for another reason
  Preempted,
  Interrupted,
};
// "host_memory"
const char* word_of(FaultClass fault);
// None: no such class.
FaultClass fault_named(std::string_view word);

enum class RestartHelps { Unknown, No, Yes };
const char* word_of(RestartHelps helps);

constexpr std::size_t kMostEvidenceLines = 4;
constexpr std::size_t kDiagnosisLineBytes = 240;

struct Diagnosis {
  FaultClass fault = FaultClass::None;
  RankRanges ranks{};  // empty: not known, or no rank
  std::optional<int> exclude_node{};
  std::string summary{};                // "rank 1 did not arrive in all_reduce"
  std::vector<std::string> evidence{};  // 1 to kMostEvidenceLines, unless `fault` is None
  RestartHelps restart_helps = RestartHelps::Unknown;
  std::string advice{};  // one sentence, without a period
  // Whether it says more than how the first failure ended.
  bool adds_to_headline = false;
  bool operator==(const Diagnosis&) const = default;
};

// Facts beside the outcome.
struct Observations {
  // Of a hang. Absent: it is read from the first failure's traceback (evidence_lines).
  std::optional<Evidence> stacks{};
  // The finding of dumps of PyTorch's Flight Recorder (flight_recorder.h). It counts for a hang,
  // and if every failed rank only waited for others.
  std::optional<Diagnosis> calls{};
  // How long the last round ran. Absent: the job's duration if it had one round, else unknown.
  std::optional<std::chrono::milliseconds> round_ran{};
};

// For the coordinator's decision about a restart.
RoundFault round_fault(const Outcome& outcome, std::chrono::milliseconds round_ran);

// The classes that a failed round can have, in the order of the enum.
const std::vector<std::string>& round_faults();

// Never throws.
Diagnosis diagnose(const Outcome& outcome, const Observations& observations = {});

}  // namespace drun::agent

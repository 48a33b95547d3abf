// Any text of a worker, as its stderr, error file or stacks, ends in a bounded diagnosis.
#include <cstdlib>
#include <string>
#include <string_view>

#include "agent/diagnosis/diagnosis.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace drun;
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  Failure failure;
  switch (data[0] % 4) {
    case 0:
      failure.status = Hung{"no output"};
      break;
    case 1:
      failure.status = Killed{data[0] / 4};
      break;
    default:
      failure.status = Exited{1};
      break;
  }
  failure.traceback = text;
  failure.message = text;
  failure.stderr_tail = {text, text};
  Failure other = failure;
  other.rank = 1;
  other.stderr_tail.pop_back();
  Outcome outcome;
  outcome.world_size = 4;
  outcome.ending = WorkersFailed{{failure, other}};
  const agent::Diagnosis found = agent::diagnose(outcome);
  if (found.fault == agent::FaultClass::None || found.evidence.empty()) std::abort();
  if (found.evidence.size() > agent::kMostEvidenceLines) std::abort();
  if (found.summary.empty() || found.summary.size() > agent::kDiagnosisLineBytes) std::abort();
  for (const std::string& line : found.evidence)
    if (line.size() > agent::kDiagnosisLineBytes) std::abort();
  return 0;
}

// Any dump of the Flight Recorder is read or rejected without harm, and what it shows together with
// a good one is bounded.
#include <cstdlib>
#include <string_view>

#include "agent/diagnosis/flight_recorder.h"
#include "agent/diagnosis/pickle.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace drun::agent;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto document = pickle::decode(bytes);
  const auto dump = read_flight_dump(0, bytes);
  if (!document) {
    if (dump || document.error().message.empty()) std::abort();
    return 0;
  }
  if (document->root() >= document->size()) std::abort();
  if (!dump) return 0;
  FlightDump other = *dump;
  other.rank = 1;
  // A rank differs from another with the same calls only if they have the same groups twice.
  const Diagnosis same = diagnose_calls({*dump, other});
  if (same.fault == FaultClass::Desync) std::abort();
  if (!other.calls.empty()) other.calls.pop_back();
  const Diagnosis found = diagnose_calls({*dump, other});
  if (found.evidence.size() > kMostEvidenceLines || found.summary.size() > kDiagnosisLineBytes)
    std::abort();
  return 0;
}

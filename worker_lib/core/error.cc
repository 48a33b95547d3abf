#include "drun/error.h"

#include <utility>

namespace drun {
namespace {

std::string sentence(const WorkerError::Details& details) {
  std::string text;
  if (details.rank >= 0) text += "rank " + std::to_string(details.rank) + ": ";
  if (!details.operation.empty()) text += details.operation + ": ";
  return text + details.message;
}

}  // namespace

WorkerError::WorkerError(Details details)
    : std::runtime_error(sentence(details)), details_(std::move(details)) {}

std::string_view to_string(WorkerError::Kind kind) {
  switch (kind) {
    case WorkerError::Kind::Usage:
      return "usage";
    case WorkerError::Kind::Timeout:
      return "timeout";
    case WorkerError::Kind::PeerLost:
      return "peer lost";
    case WorkerError::Kind::Mismatch:
      return "mismatch";
    case WorkerError::Kind::Broken:
      return "broken";
    case WorkerError::Kind::Unsupported:
      return "unsupported";
    case WorkerError::Kind::Store:
      return "store";
    case WorkerError::Kind::System:
      return "system";
  }
  return "unknown";
}

}  // namespace drun

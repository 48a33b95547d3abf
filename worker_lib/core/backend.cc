#include "drun/backend.h"

namespace drun {

std::string_view to_string(Operation operation) {
  constexpr std::string_view kNames[] = {"barrier", "broadcast",      "all_reduce",
                                         "reduce",  "gather",         "all_gather",
                                         "scatter", "reduce_scatter", "all_to_all"};
  const auto at = static_cast<std::size_t>(operation);
  return at < std::size(kNames) ? kNames[at] : "unknown";
}

std::unique_ptr<Transfer> Backend::start_send(const ConstElements&, int to, int) {
  throw BackendFailure(WorkerError::Kind::Unsupported, to, name() + " does not do messages");
}

std::unique_ptr<Transfer> Backend::start_recv(const Elements&, std::optional<int> from, int) {
  throw BackendFailure(WorkerError::Kind::Unsupported, from, name() + " does not do messages");
}

std::string Backend::message_refusal(const ConstElements&, bool, int) const { return ""; }

std::unique_ptr<Transfer> Backend::start(const Call& call, const Turn&) {
  throw BackendFailure(WorkerError::Kind::Unsupported, std::nullopt,
                       name() + " does not start " + std::string(to_string(call.operation)));
}

std::shared_ptr<void> Backend::split(const std::vector<int>&, const Turn&) { return nullptr; }

std::shared_ptr<void> Backend::alloc_shared(std::size_t, const Turn&) { return nullptr; }

}  // namespace drun

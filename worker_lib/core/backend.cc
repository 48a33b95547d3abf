#include "drun/backend.h"

namespace drun {

std::string_view to_string(Operation operation) {
  constexpr std::string_view kNames[] = {"barrier", "broadcast",      "all_reduce",
                                         "reduce",  "gather",         "all_gather",
                                         "scatter", "reduce_scatter", "all_to_all"};
  const auto at = static_cast<std::size_t>(operation);
  return at < std::size(kNames) ? kNames[at] : "unknown";
}

bool Transfer::wait_on(void*) { return false; }

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

std::vector<std::unique_ptr<Transfer>> Backend::start_batch(const std::vector<MessageCall>& batch) {
  std::vector<std::unique_ptr<Transfer>> transfers;
  transfers.reserve(batch.size());
  for (const MessageCall& message : batch) {
    transfers.push_back(message.is_send
                            ? start_send(message.outgoing, message.peer.value(), message.tag)
                            : start_recv(message.incoming, message.peer, message.tag));
  }
  return transfers;
}

std::shared_ptr<void> Backend::split(std::optional<int>, int, const Turn&) { return nullptr; }

std::shared_ptr<void> Backend::alloc_shared(std::size_t, const Turn&) { return nullptr; }

}  // namespace drun

// A group's operations, each with its mark in the process's page of signs of life.
#include <utility>

#include "worker_lib/group.h"
#include "worker_lib/pulse.h"

namespace drun {
namespace {

using worker::Message;
using worker::Pulse;
using worker::PulseMark;
using worker::PulseOperation;

PulseOperation operation_of(const Call& call, std::uint32_t group, const Turn& turn) {
  return {.group = group,
          .sequence = turn.sequence,
          .bytes = call.count * size_bytes(call.type),
          .kind = static_cast<std::uint16_t>(call.operation)};
}

// A transfer that is under way for as long as this lives.
class MarkedTransfer final : public Transfer {
 public:
  explicit MarkedTransfer(const PulseOperation& operation) : mark_(operation) {}
  void set(std::unique_ptr<Transfer> transfer) { transfer_ = std::move(transfer); }
  int finish(Deadline deadline) override { return transfer_->finish(deadline); }
  std::optional<bool> is_done() override { return transfer_->is_done(); }

 private:
  PulseMark mark_;
  std::unique_ptr<Transfer> transfer_;  // goes before the mark ends
};

template <typename Begin>
std::unique_ptr<Transfer> marked(const PulseOperation& operation, const Begin& begin) {
  if (!Pulse::own().is_on()) return begin();
  auto transfer = std::make_unique<MarkedTransfer>(operation);
  transfer->set(begin());
  return transfer;
}

}  // namespace

void ProcessGroup::Group::run_now(const Call& call, const Turn& turn) {
  const PulseMark mark(operation_of(call, parts_.label, turn));
  parts_.backend->run(call, turn);
}

std::unique_ptr<Transfer> ProcessGroup::Group::begin(const Call& call, const Turn& turn) {
  return marked(operation_of(call, parts_.label, turn),
                [&] { return parts_.backend->start(call, turn); });
}

std::unique_ptr<Transfer> ProcessGroup::Group::post(const Message& message) {
  const ConstElements data = message.is_send ? message.outgoing : message.incoming;
  const PulseOperation operation{.group = parts_.label,
                                 .bytes = data.count * size_bytes(data.type),
                                 .kind = message.is_send ? kPulseSend : kPulseRecv};
  return marked(operation, [&] {
    if (message.is_send)
      return parts_.backend->start_send(message.outgoing, *message.peer, message.tag);
    return parts_.backend->start_recv(message.incoming, message.peer, message.tag);
  });
}

}  // namespace drun

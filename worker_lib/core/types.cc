// The functions of the small types of the public headers.
#include <initializer_list>
#include <iterator>
#include <utility>

#include "drun/backend.h"
#include "drun/elements.h"
#include "drun/error.h"

namespace drun {
namespace {

// The values of enumerations can come from other processes.
template <typename Enum>
std::string_view name_at(std::initializer_list<std::string_view> names, Enum value) {
  const auto at = static_cast<std::size_t>(value);
  return at < names.size() ? names.begin()[at] : "unknown";
}

}  // namespace

// --- drun/error.h

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
  return name_at(
      {"usage", "timeout", "peer lost", "mismatch", "broken", "unsupported", "store", "system"},
      kind);
}

// --- drun/elements.h

namespace {

struct TypeTraits {
  std::string_view name = "unknown";
  std::size_t bytes = 1;
  bool is_real = false;
};

TypeTraits traits_of(DataType type) {
  static constexpr TypeTraits kTraits[] = {
      {"u8", 1},          {"i8", 1},        {"i16", 2},       {"i32", 4},
      {"u32", 4},         {"i64", 8},       {"u64", 8},       {"f16", 2, true},
      {"bf16", 2, true},  {"f32", 4, true}, {"f64", 8, true}, {"f8e4m3", 1, true},
      {"f8e5m2", 1, true}};
  const auto at = static_cast<std::size_t>(type);
  return at < std::size(kTraits) ? kTraits[at] : TypeTraits{};
}

}  // namespace

std::size_t size_bytes(DataType type) { return traits_of(type).bytes; }
bool is_floating_point(DataType type) { return traits_of(type).is_real; }
std::string_view to_string(DataType type) { return traits_of(type).name; }

std::string_view to_string(ReduceOp op) {
  return name_at({"sum", "product", "min", "max", "band", "bor", "bxor", "avg"}, op);
}

// --- drun/backend.h

std::string_view to_string(Operation operation) {
  return name_at({"barrier", "broadcast", "all_reduce", "reduce", "gather", "all_gather", "scatter",
                  "reduce_scatter", "all_to_all"},
                 operation);
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
  throw BackendFailure(WorkerError::Kind::Unsupported,
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

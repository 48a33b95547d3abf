#include "worker_lib/core/calls.h"

#include <limits>
#include <numeric>
#include <optional>

#include "worker_lib/base/signature.h"
#include "worker_lib/math/reduce.h"

namespace drun::worker {
namespace {

// Null: none. The first condition is a fast check that accepts normal arguments.
const char* fault_of(const ConstElements& data) {
  if (data.data != nullptr && data.count < (std::size_t{1} << 40)) return nullptr;
  constexpr std::size_t kMostBytes = std::numeric_limits<std::ptrdiff_t>::max();
  if (data.count > kMostBytes / size_bytes(data.type)) {
    return "that many elements do not fit into memory";
  }
  return data.data == nullptr && data.count > 0 ? "the data is a null pointer" : nullptr;
}

// Throws, with the operation's text.
template <typename What>
[[noreturn]] void refuse(const Place& place, const What& what, const std::string& message) {
  throw WorkerError({.kind = WorkerError::Kind::Usage,
                     .rank = place.rank,
                     .operation = to_string(what),
                     .message = message});
}

// Checks one call. Texts are only made for errors.
class Checker {
 public:
  Checker(const Place& place, const Call& call) : place_(place), call_(call) {}

  void memory(const ConstElements& data) const {
    if (const char* fault = fault_of(data)) refuse(fault);
  }

  void same_kind(const ConstBuffer& input, const ConstBuffer& output) const {
    if (input.elements.type != output.elements.type) {
      refuse("the input is of type " + std::string(drun::to_string(input.elements.type)) +
             ", the output of " + std::string(drun::to_string(output.elements.type)));
    }
    if (input.value_size != output.value_size) {
      refuse("the input has values of " + std::to_string(input.value_size) +
             " bytes, the output of " + std::to_string(output.value_size));
    }
    if (input.elements.gpu != output.elements.gpu) {
      refuse("input and output lie in different memories");
    }
  }

  void root() const {
    if (call_.root >= 0 && call_.root < place_.size) return;
    refuse("root is rank " + std::to_string(call_.root) + ", but ranks are 0 to " +
           std::to_string(place_.size - 1));
  }

  void op() const {
    const bool is_real = is_floating_point(call_.type);
    const bool is_bits =
        call_.op == ReduceOp::Band || call_.op == ReduceOp::Bor || call_.op == ReduceOp::Bxor;
    if (is_bits && is_real) refuse("bits are combined of integers only");
    if (call_.op == ReduceOp::Avg && !is_real) {
      refuse("an average is made of floating-point numbers only; use sum");
    }
    const bool is_short = size_bytes(call_.type) == 1;
    if (call_.factor && (!is_real || is_short)) {
      refuse("premul_sum multiplies f16, bf16, f32 and f64 only, not " +
             std::string(drun::to_string(call_.type)));
    }
  }

  void count(const std::string& which, std::size_t is, std::size_t should_be) const {
    if (is == should_be) return;
    refuse(which + " has " + std::to_string(is) + " elements and should have " +
           std::to_string(should_be));
  }

  void empty(const std::string& which, const ConstBuffer& data) const {
    if (data.count() == 0) return;
    refuse(which + " is used on the root only: leave it empty here");
  }

  // The parts add up to `whole`, and this rank's part is `mine`.
  void parts(const Counts& counts, std::size_t whole, std::optional<std::size_t> mine) const {
    if (counts.size() != static_cast<std::size_t>(place_.size)) {
      refuse(std::to_string(counts.size()) + " counts for " + std::to_string(place_.size) +
             " ranks");
    }
    constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
    std::size_t sum = 0;
    for (const std::size_t each : counts) sum = each > kMost - sum ? kMost : sum + each;
    if (sum != whole) {
      refuse("the counts add up to " + std::to_string(sum) + ", but the buffer has " +
             std::to_string(whole) + " elements");
    }
    if (mine) count("this rank's part", *mine, counts[static_cast<std::size_t>(place_.rank)]);
  }

  [[noreturn]] void refuse(const std::string& message) const {
    worker::refuse(place_, call_, message);
  }

 private:
  const Place& place_;
  const Call& call_;
};

void check_all_to_all(const Checker& check, const Place& place, const Arguments& given) {
  const std::size_t in = given.input.count();
  const std::size_t out = given.output.count();
  if (given.counts_in != nullptr) {
    const auto me = static_cast<std::size_t>(place.rank);
    check.parts(*given.counts_in, in, std::nullopt);
    check.parts(*given.counts_out, out, std::nullopt);
    check.count("this rank's part of the input", (*given.counts_in)[me], (*given.counts_out)[me]);
  } else {
    const auto size = static_cast<std::size_t>(place.size);
    check.count("the output", out, in);
    check.count("the input", in, in / size * size);
  }
}

}  // namespace

Call make_call(const Place& place, const Arguments& given) {
  if (given.operation == Operation::Barrier) return {};
  const Shape shape = shape_of(given.operation);
  const bool is_root = !shape.has_root || place.rank == given.root;
  // The buffer with this rank's part, and the one with the parts of all ranks if there is one.
  const bool has_output_part = shape.splits_input && !shape.splits_output;
  const ConstBuffer output = given.output;
  const ConstBuffer& mine = has_output_part ? output : given.input;
  const ConstBuffer& whole = has_output_part ? given.input : output;
  const Counts* counts = has_output_part ? given.counts_in : given.counts_out;
  // The buffers and counts that only the root has.
  const bool has_input = is_root || !shape.splits_input;
  const bool has_output = is_root || given.operation == Operation::Broadcast || has_output_part;
  const auto data_of = [](const Counts* from) { return from ? from->data() : nullptr; };

  Call call{.operation = given.operation,
            .type = mine.elements.type,
            .op = given.op.op(),
            .factor = given.op.factor(),
            .root = given.root,
            .input = has_input ? given.input.elements.data : nullptr,
            .output = has_output ? given.output.elements.data : nullptr,
            .count = mine.elements.count,
            .counts_in = has_input ? data_of(given.counts_in) : nullptr,
            .counts_out = has_output ? data_of(given.counts_out) : nullptr,
            .is_uneven = counts != nullptr,
            .gpu = mine.elements.gpu,
            .stream = mine.elements.stream};
  const Checker check(place, call);
  check.memory(mine.elements);
  if (shape.is_reduction) check.op();
  if (shape.has_root) check.root();
  if (!shape.splits_input && !shape.splits_output) return call;
  const char* const name = has_output_part ? "the input" : "the output";
  if (!is_root) {
    check.empty(name, whole);
    return call;
  }
  check.memory(whole.elements);
  check.same_kind(given.input, output);
  const auto size = static_cast<std::size_t>(place.size);
  if (given.operation == Operation::AllToAll) {
    call.count = call.is_uneven ? 0 : mine.count() / size * mine.value_size;
    check_all_to_all(check, place, given);
  } else if (counts != nullptr) {
    check.parts(*counts, whole.count(), mine.count());
  } else {
    check.count(name, whole.count(), mine.count() * size);
  }
  return call;
}

void check_parts(const Place& place, const Arguments& given) {
  const Call call{.operation = given.operation,
                  .type = given.input.elements.type,
                  .root = given.root,
                  .is_uneven = true};
  const Checker check(place, call);
  if (shape_of(given.operation).has_root) {
    check.root();
    if (place.rank != given.root) {
      check.empty("the input", given.input);
      return check.empty("the list of counts", *given.counts_in);
    }
  }
  check.parts(*given.counts_in, given.input.count(), std::nullopt);
}

Call multiplied(Call call, int size, std::vector<std::byte>& product) {
  std::size_t count = call.count;
  if (call.operation == Operation::ReduceScatter) {
    const auto ranks = static_cast<std::size_t>(size);
    count = call.is_uneven ? std::accumulate(call.counts_in, call.counts_in + ranks, std::size_t{0})
                           : count * ranks;
  }
  void* to = call.output;
  if (call.output != call.input) {
    product.resize(count * size_bytes(call.type));
    to = product.data();
  }
  multiply(to, call.input, call.type, count, call.factor.value());
  call.input = to;
  call.factor.reset();
  return call;
}

std::string to_string(const MessageCall& message) {
  const ConstElements data = message.data();
  return std::string(message.is_send ? "send(" : "recv(") + std::string(to_string(data.type)) +
         " x " + std::to_string(data.count) + (message.is_send ? ", to " : ", from ") +
         (message.peer ? "rank " + std::to_string(*message.peer) : "anyone") + ")";
}

void check(const Place& place, const MessageCall& message) {
  const auto refuse = [&](const std::string& why) { worker::refuse(place, message, why); };
  if (const char* fault = fault_of(message.data())) refuse(fault);
  if (message.peer && (*message.peer < 0 || *message.peer >= place.size)) {
    refuse("the peer is rank " + std::to_string(*message.peer) + ", but ranks are 0 to " +
           std::to_string(place.size - 1));
  }
  if (message.peer == place.rank) refuse("a rank cannot exchange with itself");
  if (place.size == 1) refuse("there is no other rank");
  constexpr int kMostTags = 1 << 20;
  if (message.tag < 0 || message.tag >= kMostTags) {
    refuse("tag " + std::to_string(message.tag) + " is not from 0 to " +
           std::to_string(kMostTags - 1));
  }
}

}  // namespace drun::worker

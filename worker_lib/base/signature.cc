#include "worker_lib/base/signature.h"

#include <algorithm>

#include "rendezvous/job/rank_ranges.h"

namespace drun::worker {
namespace {

constexpr std::uint8_t kMessage = 0x80;  // in place of an operation
constexpr std::uint8_t kUneven = 0x40;   // with an operation: one of the _v kind

// Operations whose sizes every rank knows.
const std::size_t* shared_counts(const Call& call) {
  if (call.operation == Operation::AllGather) return call.counts_out;
  if (call.operation == Operation::ReduceScatter) return call.counts_in;
  return nullptr;
}

// What an operation is called with, apart from where.
struct Fields {
  std::uint8_t operation = 0;
  DataType type = DataType::U8;
  ReduceOp op = ReduceOp::Sum;
  std::uint32_t root = 0;
  std::uint64_t count = 0;
};

std::string field_text(const Fields& fields) {
  const std::string type(to_string(fields.type));
  const std::string count = std::to_string(fields.count);
  if (fields.operation == kMessage) return type + " x " + count;
  const auto operation = static_cast<Operation>(fields.operation & ~kUneven);
  if (operation > Operation::AllToAll) return "unknown call";
  if (operation == Operation::Barrier) return "barrier()";
  const bool is_v = (fields.operation & kUneven) != 0;
  std::string text = std::string(to_string(operation)) + (is_v ? "_v(" : "(") + type;
  if (!is_v) text += " x " + count;
  if (shape_of(operation).is_reduction) text += ", " + std::string(to_string(fields.op));
  if (shape_of(operation).has_root) text += ", root " + std::to_string(fields.root);
  return text + ")";
}

// As decode reads it.
Signature encode(const Fields& fields) {
  return {.what = fields.operation | static_cast<std::uint64_t>(fields.type) << 8 |
                  static_cast<std::uint64_t>(fields.op) << 16 |
                  static_cast<std::uint64_t>(fields.root) << 32,
          .count = fields.count};
}

Fields decode(const Signature& signature) {
  const auto byte = [&](int at) { return static_cast<std::uint8_t>(signature.what >> (8 * at)); };
  return {.operation = byte(0),
          .type = static_cast<DataType>(byte(1)),
          .op = static_cast<ReduceOp>(byte(2)),
          .root = static_cast<std::uint32_t>(signature.what >> 32),
          .count = signature.count};
}

Fields fields_of(const Call& call) {
  Fields fields{.operation = static_cast<std::uint8_t>(call.operation)};
  if (call.operation == Operation::Barrier) return fields;
  const Shape shape = shape_of(call.operation);
  if (call.is_uneven) fields.operation |= kUneven;
  fields.type = call.type;
  if (shape.is_reduction) fields.op = call.op;
  if (shape.has_root) fields.root = static_cast<std::uint32_t>(call.root);
  if (!call.is_uneven) fields.count = call.count;
  return fields;
}

BackendFailure disagreement(std::uint32_t sequence, const std::string& what) {
  return {WorkerError::Kind::Mismatch,
          "the ranks disagree about collective number " + std::to_string(sequence) + ": " + what};
}

}  // namespace

std::string to_string(const Call& call) { return field_text(fields_of(call)); }

Signature signature_of(const Call& call, int size) {
  Fields fields = fields_of(call);
  if (const std::size_t* counts = shared_counts(call))
    fields.count = hash_of(std::span(counts, static_cast<std::size_t>(size)));
  return encode(fields);
}

Signature signature_of(DataType type, std::size_t count) {
  return encode({.operation = kMessage, .type = type, .count = count});
}

std::string describe(const Signature& signature) { return field_text(decode(signature)); }

std::string describe_ranks(const std::vector<int>& ranks) {
  RankRanges ranges;
  for (const int rank : ranks) ranges.push_back({rank, rank});
  normalize(ranges);
  return ranks_text(ranges);
}

std::string describe_disagreement(const std::vector<Signature>& by_rank) {
  std::vector<Signature> told;
  std::vector<std::string> calls;
  std::string text;
  for (const Signature& call : by_rank) {
    if (std::find(told.begin(), told.end(), call) != told.end()) continue;
    told.push_back(call);
    // Of the counts of a _v operation, a signature has only the hash.
    const bool is_repeated = std::find(calls.begin(), calls.end(), describe(call)) != calls.end();
    calls.push_back(describe(call));
    std::vector<int> callers;
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      if (by_rank[rank] == call) callers.push_back(static_cast<int>(rank));
    }
    text += (text.empty() ? "" : "; ") + describe_ranks(callers) +
            (callers.size() == 1 ? " calls " : " call ") + calls.back() +
            (is_repeated ? " with other counts" : "");
  }
  return text;
}

void check_same_calls(std::uint32_t sequence, const std::vector<Signature>& by_rank) {
  const bool is_same = std::all_of(by_rank.begin(), by_rank.end(),
                                   [&](const Signature& each) { return each == by_rank.front(); });
  if (!is_same) throw disagreement(sequence, describe_disagreement(by_rank));
}

BackendFailure message_mismatch(int from, const Signature& sent, const Signature& expected) {
  return {WorkerError::Kind::Mismatch, from,
          "rank " + std::to_string(from) + " sends " + describe(sent) + ", this rank receives " +
              describe(expected)};
}

bool has_private_counts(const Call& call) {
  return call.is_uneven &&
         (call.operation == Operation::Gather || call.operation == Operation::Scatter ||
          call.operation == Operation::AllToAll);
}

PartCounts part_counts(const Call& call, int rank, int size) {
  const auto ranks = static_cast<std::size_t>(size);
  const auto root = static_cast<std::size_t>(call.root);
  PartCounts counts(2 * ranks);
  const auto copy = [&](const std::size_t* from, std::size_t begin) {
    if (from != nullptr) std::copy_n(from, ranks, &counts[begin]);
  };
  const bool is_rooted = call.operation != Operation::AllToAll;
  if (!is_rooted || rank == call.root) {
    copy(call.counts_in, 0);
    copy(call.counts_out, ranks);
  }
  if (call.operation == Operation::Gather) counts[root] = call.count;
  if (call.operation == Operation::Scatter) counts[ranks + root] = call.count;
  return counts;
}

void check_part_counts(const Call& call, std::uint32_t sequence, const PartCounts& by_rank,
                       int size) {
  const auto ranks = static_cast<std::size_t>(size);
  for (std::size_t from = 0; from < ranks; ++from) {
    for (std::size_t to = 0; to < ranks; ++to) {
      const std::uint64_t given = by_rank[from * 2 * ranks + to];
      const std::uint64_t expected = by_rank[to * 2 * ranks + ranks + from];
      if (given == expected) continue;
      throw disagreement(sequence, to_string(call) + ": rank " + std::to_string(from) + " has " +
                                       std::to_string(given) + " elements for rank " +
                                       std::to_string(to) + ", which expects " +
                                       std::to_string(expected));
    }
  }
}

}  // namespace drun::worker

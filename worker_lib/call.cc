#include "worker_lib/call.h"

#include <algorithm>

#include "rendezvous/bytes.h"

namespace drun::worker {
namespace {

std::string typed(const Call& call) {
  return std::string(to_string(call.type)) + " x " + std::to_string(call.count);
}

}  // namespace

std::string to_string(const Call& call) {
  switch (call.name) {
    case Call::Name::Barrier:
      return "barrier()";
    case Call::Name::AllReduce:
      return "all_reduce(" + typed(call) + ", " + std::string(to_string(call.op)) + ")";
    case Call::Name::Broadcast:
      return "broadcast(" + typed(call) + ", root " + std::to_string(call.root) + ")";
    case Call::Name::Message:
      return typed(call);
  }
  return "unknown call";
}

CallBytes encode(const Call& call) {
  std::string bytes;
  ByteWriter writer(bytes);
  writer.u8(static_cast<std::uint8_t>(call.name));
  writer.u8(static_cast<std::uint8_t>(call.type));
  writer.u8(static_cast<std::uint8_t>(call.op));
  writer.u8(0);
  writer.u32(static_cast<std::uint32_t>(call.root));
  writer.u64(call.count);
  CallBytes result{};
  std::copy_n(bytes.begin(), kCallBytes, result.begin());
  return result;
}

std::string describe(const CallBytes& bytes) {
  ByteReader reader(std::string_view(bytes.data(), bytes.size()));
  Call call;
  call.name = static_cast<Call::Name>(reader.u8());
  call.type = static_cast<DataType>(reader.u8());
  call.op = static_cast<ReduceOp>(reader.u8());
  reader.u8();
  call.root = static_cast<std::int32_t>(reader.u32());
  call.count = reader.u64();
  return to_string(call);
}

std::string describe_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (first > 0) text += ", ";
    text += std::to_string(ranks[first]);
    if (last > first) text += (last == first + 1 ? ", " : "-") + std::to_string(ranks[last]);
    first = last + 1;
  }
  return text;
}

std::string describe_disagreement(const std::vector<CallBytes>& by_rank) {
  std::vector<CallBytes> told;
  std::string text;
  for (const CallBytes& call : by_rank) {
    if (std::find(told.begin(), told.end(), call) != told.end()) continue;
    told.push_back(call);
    std::vector<int> callers;
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      if (by_rank[rank] == call) callers.push_back(static_cast<int>(rank));
    }
    text += (text.empty() ? "" : "; ") + describe_ranks(callers) +
            (callers.size() == 1 ? " calls " : " call ") + describe(call);
  }
  return text;
}

}  // namespace drun::worker

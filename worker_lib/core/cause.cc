#include "worker_lib/core/cause.h"

#include "rendezvous/base/bytes.h"

namespace drun::worker {
namespace {

constexpr std::size_t kOperationBytes = 256;
constexpr std::size_t kMessageBytes = 3072;
constexpr std::int64_t kNobody = -1;

}  // namespace

std::string encode(const Cause& cause) {
  std::string bytes;
  ByteWriter writer(bytes);
  writer.u8(static_cast<std::uint8_t>(cause.kind));
  writer.i64(cause.reporter);
  writer.i64(cause.peer ? *cause.peer : kNobody);
  writer.text(std::string_view(cause.operation).substr(0, kOperationBytes));
  writer.text(std::string_view(cause.message).substr(0, kMessageBytes));
  return bytes;
}

std::optional<Cause> decode_cause(std::string_view bytes) {
  ByteReader reader(bytes);
  const std::uint8_t kind = reader.u8();
  const std::int64_t reporter = reader.i64();
  const std::int64_t peer = reader.i64();
  const std::string_view operation = reader.text(kOperationBytes);
  const std::string_view message = reader.text(kMessageBytes);
  constexpr std::int64_t kMostRanks = std::int64_t{1} << 30;
  const bool is_good = !reader.failed() && reader.at_end() &&
                       kind <= static_cast<std::uint8_t>(WorkerError::Kind::System) &&
                       reporter >= 0 && reporter < kMostRanks && peer >= kNobody &&
                       peer < kMostRanks;
  if (!is_good) return std::nullopt;
  Cause cause;
  cause.kind = static_cast<WorkerError::Kind>(kind);
  cause.reporter = static_cast<int>(reporter);
  if (peer != kNobody) cause.peer = static_cast<int>(peer);
  cause.operation = operation;
  cause.message = message;
  return cause;
}

}  // namespace drun::worker

// core. Encodes and decodes control messages (docs/internals/wire.md).
//
// Format:  a frame is u32 length, u8 kind, fields; frame_reader.h splits streams into frames.
// Limits:  every field, list and frame has a limit. Memory is allocated for received bytes only,
//          not for announced ones. The sender truncates texts that are too long, and only counts
//          failures beyond the budget (failure_list.h), so that encode always makes a valid frame.
// Errors:  decode: Refused, naming the invalid message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/job/census.h"
#include "rendezvous/protocol/control_message.h"

namespace drun::rendezvous {

// A Hello fits into the first limit, which applies until a member is accepted.
constexpr std::size_t kHelloFrameLimitBytes = std::size_t{16} << 10;
constexpr std::size_t kFrameLimitBytes = std::size_t{512} << 10;
// The most bytes that the failures of one Stopped or Finish take together, beyond the first, which
// always fits.
constexpr std::size_t kFailuresBudgetBytes = std::size_t{64} << 10;

// Limits of the addresses in a Hello.
constexpr std::size_t kMostAddressesToldBytes = 64;  // of each
constexpr std::size_t kMostAddressesTold = 64;

// Limits of one HangSuspected: groups, and the ranges and pids of all groups together. An agent
// with more suspects sends several messages.
constexpr std::size_t kMostSuspectGroups = 64;
constexpr std::size_t kMostSuspectRanges = 8192;
constexpr std::size_t kMostSuspectPids = 16384;

// Limits of queries: a question, the answer of one node, and a result, which almost fills a frame.
constexpr std::size_t kMostQuestionBytes = 128;
constexpr std::size_t kMostNodeAnswerBytes = std::size_t{128} << 10;
constexpr std::size_t kMostResultBytes = kFrameLimitBytes - (std::size_t{8} << 10);

// Whole frames, length included.
std::string encode(const MemberMessage& message);
std::string encode(const CoordinatorMessage& message);

// A QueryResult for many: encoded once, and only the frame's head differs between the recipients.
// The frame is head and body.
class SharedResult {
 public:
  using Bytes = std::shared_ptr<const std::string>;
  explicit SharedResult(const QueryResult& result);
  std::string head(std::uint64_t number) const;
  const Bytes& body() const { return body_; }

 private:
  std::string head_;
  Bytes body_;
};

// The answer in the result of a query of the status. Absent: malformed.
std::string encode_census(Census census);
std::optional<Census> decode_census(std::string_view bytes);

// `frame`: kind and fields, without the length.
Result<MemberMessage> decode_member_message(std::string_view frame);
Result<CoordinatorMessage> decode_coordinator_message(std::string_view frame);

// The size of one failure in a message, as counted for kFailuresBudgetBytes.
std::size_t wire_size_bytes(const Failure& failure);

}  // namespace drun::rendezvous

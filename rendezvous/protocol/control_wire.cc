#include "rendezvous/protocol/control_wire.h"

#include <cassert>
#include <utility>

#include "rendezvous/base/bytes.h"
#include "rendezvous/net/frame_reader.h"
#include "rendezvous/net/member_addresses.h"
#include "rendezvous/protocol/line_window.h"
#include "rendezvous/protocol/message_layouts.h"
#include "rendezvous/protocol/wire_fields.h"

namespace drun::rendezvous {
namespace {

constexpr WireRange kPort{0, 65535};
constexpr std::size_t kMostListed = 64;
constexpr WireRange kTerm{0, std::int64_t{1} << 60};

// Fails unless the roles cover all workers of the node.
template <typename Archive, typename Share>
void require_whole(Archive& archive, const std::vector<Share>& roles, int workers) {
  if constexpr (Archive::kIsReader) {
    if (!is_whole(roles, workers)) archive.fail();
  }
}

template <typename Archive>
void fields(Archive& archive, World& world) {
  archive.text(world.run_id, kIdentityBytes);
  archive.integer(world.round, kCount);
  archive.integer(world.restarts, kCount);
  archive.integer(world.max_restarts, kCount);
  archive.integer(world.node_rank, kCount);
  archive.integer(world.node_count, kCount);
  archive.integer(world.base_rank, kCount);
  archive.integer(world.local_world_size, kCount);
  archive.integer(world.world_size, kCount);
  archive.text(world.role, kNameBytes);
  archive.integer(world.role_base_rank, kCount);
  archive.integer(world.role_world_size, kCount);
  archive.text(world.master_addr, kIdentityBytes);
  archive.integer(world.master_port, kPort);
  archive.flag(world.use_agent_store);
  archive.flag(world.is_preflight);
  archive.list(world.roles, kMostRoleShares, [](auto& each, RoleRanks& share) {
    each.text(share.role, kNameBytes);
    each.integer(share.workers, kCount);
    each.integer(share.base_rank, kCount);
    each.integer(share.world_size, kCount);
  });
  require_whole(archive, world.roles, world.local_world_size);
}

template <typename Archive>
void fields(Archive& archive, NodeRecord& record) {
  archive.text(record.name, kRecordTextBytes);
  archive.integer(record.slot, kCount);
  archive.integer(record.losses, kCount);
  archive.flag(record.is_left_out);
  archive.integer(record.node_rank, kCount);
  archive.integer(record.round, kCount);
  archive.text(record.reason, kRecordTextBytes);
}
template <typename Archive>
void fields(Archive& archive, std::vector<NodeRecord>& records) {
  archive.list(records, kMostRecords, [](auto& each, NodeRecord& record) { fields(each, record); });
}

template <typename Archive>
void fields(Archive& archive, Past& past) {
  archive.integer(past.rounds, kCount);
  archive.integer(past.node_count, kCount);
  archive.duration(past.age, kMostMilliseconds);
  archive.text(past.coordinator, kNameBytes);
  archive.integer(past.restarts, kCount);
  archive.list(past.restart_ages, kMostRestartsTold,
               [](auto& each, Milliseconds& age) { each.duration(age, kMostMilliseconds); });
  fields(archive, past.records);
  bool has_failure = past.failure.has_value();
  archive.flag(has_failure);
  if (has_failure) fields(archive, past.failure ? *past.failure : past.failure.emplace());
}

// --- Queries

// Bytes of an agent, which keeps the limit.
template <typename Archive>
void opaque(Archive& archive, std::string& bytes, std::size_t limit_bytes) {
  assert(Archive::kIsReader || bytes.size() <= limit_bytes);
  archive.text(bytes, limit_bytes);
}

template <typename Archive>
void fields(Archive& archive, Query& query) {
  archive.bits(query.number);
  word(archive, query.kind, QueryKind::Log);
  archive.integer(query.rank, kCount);
  opaque(archive, query.question, kMostQuestionBytes);
}
template <typename Archive>
void fields(Archive& archive, NodeQuery& query) {
  archive.bits(query.number);
  word(archive, query.kind, QueryKind::Log);
  opaque(archive, query.question, kMostQuestionBytes);
}
template <typename Archive>
void fields(Archive& archive, NodeAnswer& given) {
  archive.bits(given.number);
  opaque(archive, given.answer, kMostNodeAnswerBytes);
}
// The number comes first (SharedResult).
template <typename Archive>
void fields(Archive& archive, QueryResult& result) {
  archive.bits(result.number);
  archive.text(result.note, kSentenceBytes);
  opaque(archive, result.answer, kMostResultBytes);
}

// --- From members
template <typename Archive>
void fields(Archive& archive, Hello& hello) {
  archive.text(hello.run_id, kIdentityBytes);
  optional_rank(archive, hello.node_rank);
  archive.integer(hello.node_count, kCount);
  archive.integer(hello.local_world_size, kCount);
  archive.text(hello.role, kNameBytes);
  archive.text(hello.host, kNameBytes);
  archive.integer(hello.pid, kPid);
  archive.bits(hello.instance);
  archive.flag(hello.is_probe);
  archive.integer(hello.min_node_count, kCount);
  archive.integer(hello.slot, kCount);
  archive.flag(hello.is_coordinator);
  archive.list(hello.addresses, kMostAddressesTold, [](auto& each, std::string& address) {
    each.text(address, kMostAddressesToldBytes);
  });
  bool has_past = hello.past.has_value();
  archive.flag(has_past);
  if (has_past) fields(archive, hello.past ? *hello.past : hello.past.emplace());
  archive.integer(hello.lost_term, kTerm);
  archive.flag(hello.gathers);
  archive.list(hello.roles, kMostRoleShares, [](auto& each, RoleShare& share) {
    each.text(share.role, kNameBytes);
    each.integer(share.workers, kCount);
  });
  require_whole(archive, hello.roles, hello.local_world_size);
}
template <typename Archive>
void fields(Archive& archive, Failed& failed) {
  archive.integer(failed.round, kCount);
  fields(archive, failed.first);
}
template <typename Archive>
void fields(Archive& archive, AllReturned& returned) {
  archive.integer(returned.round, kCount);
}
template <typename Archive>
void fields(Archive& archive, Stopped& stopped) {
  archive.integer(stopped.round, kCount);
  archive.list(stopped.failures, kMostFailures,
               [](auto& each, AgedFailure& failure) { fields(each, failure); });
  archive.integer(stopped.left_out, kCount);
  archive.text(stopped.unusable, kSentenceBytes);
  WorkProgress& progress = stopped.progress;
  archive.flag(progress.has_more);
  bool has_step = progress.step.has_value();
  archive.flag(has_step);
  if (has_step) archive.bits(progress.step ? *progress.step : progress.step.emplace());
}
template <typename Archive>
void fields(Archive& archive, Signaled& signaled) {
  archive.integer(signaled.signal, kSignal);
}
template <typename Archive>
void fields(Archive&, Ping&) {}
template <typename Archive>
void fields(Archive& archive, HangSuspected& suspected) {
  archive.integer(suspected.round, kCount);
  archive.duration(suspected.settle, kMostMilliseconds);
  archive.list(suspected.groups, kMostSuspectGroups, [](auto& each, SuspectGroup& group) {
    rank_ranges(each, group.ranks, kMostSuspectRanges);
    each.list(group.pids, kMostSuspectPids, [](auto& one, int& pid) { one.integer(pid, kPid); });
    fields(each, group.first);
  });
}

template <typename Archive>
void fields(Archive& archive, Ballot& ballot) {
  archive.text(ballot.run_id, kIdentityBytes);
  archive.text(ballot.seats, kIdentityBytes);
  archive.integer(ballot.seat, kCount);
  archive.bits(ballot.instance);
  archive.bits(ballot.number);
  archive.integer(ballot.kind, {0, static_cast<int>(BallotKind::Release)});
  archive.integer(ballot.term, kTerm);
  archive.integer(ballot.rounds, kCount);
}

template <typename Archive>
void fields(Archive& archive, Lines& lines) {
  archive.integer(lines.round, kCount);
  archive.integer(lines.local_rank, kCount);
  for (bool* flag : {&lines.is_stderr, &lines.is_shown, &lines.is_labeled, &lines.is_kept,
                     &lines.goes_on, &lines.is_end})
    archive.flag(*flag);
  moment(archive, lines.time);
  archive.text(lines.text, kMostLinesTextBytes);
}

template <typename Archive>
void fields(Archive& archive, TimesReport& told) {
  fields(archive, told.times);
}

template <typename Archive>
void fields(Archive& archive, SpeedReport& told) {
  NodeSpeed& speed = told.speed;
  archive.integer(told.round, kCount);
  archive.integer(speed.window, kCount);
  archive.duration(speed.length, kMostMilliseconds);
  word(archive, speed.measure, SpeedMeasure::Steps);
  archive.flag(speed.has_progress);
  archive.list(speed.amounts, kMostSpeedRanks,
               [](auto& each, int& amount) { each.integer(amount, kCount); });
  archive.integer(speed.stolen_permille, {0, 1000});
  archive.integer(speed.throttled_permille, {0, 1000});
  archive.flag(speed.is_hot);
}

template <typename Archive>
void fields(Archive& archive, LivenessReply& reply) {
  archive.bits(reply.check);
}

// --- From the coordinator, and answers of seats
template <typename Archive>
void fields(Archive& archive, Welcome& welcome) {
  archive.duration(welcome.heartbeat_timeout, kMostMilliseconds);
  archive.integer(welcome.term, kTerm);
  archive.integer(welcome.line_window_bytes, kCount);
}
template <typename Archive>
void fields(Archive& archive, LinesTaken& taken) {
  archive.integer(taken.bytes, kCount);
}
template <typename Archive>
void fields(Archive& archive, Waiting& waiting) {
  archive.integer(waiting.node_count, kCount);
  archive.integer(waiting.joined_count, kCount);
  archive.list(waiting.joined, kMostListed, [](auto& each, NodeName& name) {
    each.integer(name.node_rank, kCount);
    each.text(name.host, kNameBytes);
  });
  archive.list(waiting.missing, kMostListed,
               [](auto& each, int& node_rank) { each.integer(node_rank, kCount); });
  archive.integer(waiting.min_node_count, kCount);
  archive.flag(waiting.is_spare);
  archive.duration(waiting.left, kMostMilliseconds);
}
template <typename Archive>
void fields(Archive& archive, Refused& refused) {
  fields(archive, refused.error);
}
template <typename Archive>
void fields(Archive& archive, WorldReady& ready) {
  fields(archive, ready.world);
}
template <typename Archive>
void fields(Archive& archive, Stop& stop) {
  archive.integer(stop.round, kCount);
  archive.text(stop.cause, kSentenceBytes);
  bool has_notice = stop.notice.has_value();
  archive.flag(has_notice);
  if (!has_notice) return;
  StopNotice& notice = stop.notice ? *stop.notice : stop.notice.emplace();
  archive.integer(notice.signal, kSignal);
  archive.duration(notice.time, kMostMilliseconds);
}
template <typename Archive>
void fields(Archive& archive, Finish& finish) {
  fields(archive, finish.outcome);
}
template <typename Archive>
void fields(Archive&, Pong&) {}
template <typename Archive>
void fields(Archive& archive, HangFound& found) {
  archive.integer(found.round, kCount);
  archive.text(found.cause, kSentenceBytes);
  opaque(archive, found.evidence, kMostResultBytes);
}
template <typename Archive>
void fields(Archive& archive, FaultInjected& told) {
  InjectedFault& fault = told.fault;
  archive.text(fault.fault, kSentenceBytes);
  WallTime time = fault.time.value_or(WallTime{});
  moment(archive, time);
  fault.time = time;
  optional_rank(archive, fault.rank);
  archive.integer(fault.node_rank, kCount);
  archive.text(fault.host, kNameBytes);
  archive.integer(fault.round, kCount);
}
template <typename Archive>
void fields(Archive& archive, NodeLeftOut& told) {
  fields(archive, told.node);
}

template <typename Archive>
void fields(Archive& archive, SlowFound& told) {
  fields(archive, told.slow);
}

template <typename Archive>
void fields(Archive& archive, Vote& vote) {
  archive.bits(vote.number);
  archive.bits(vote.instance);
  archive.flag(vote.is_granted);
  archive.flag(vote.is_fresh);
  archive.duration(vote.free_in, kMostMilliseconds);
  archive.integer(vote.term, kTerm);
  archive.integer(vote.rounds, kCount);
}
template <typename Archive>
void fields(Archive& archive, Follow& follow) {
  archive.text(follow.host, kIdentityBytes);
  archive.integer(follow.port, kPort);
  archive.integer(follow.term, kTerm);
}

template <typename Archive>
void fields(Archive& archive, Remember& remember) {
  fields(archive, remember.records);
  archive.integer(remember.restarts, kCount);
}

template <typename Archive>
void fields(Archive& archive, LivenessCheck& check) {
  archive.bits(check.check);
}

template <typename Message>
std::string encode_frame(Message message) {
  std::string frame(4, '\0');
  WireWriter writer(frame);
  one_of(writer, message, [](auto& archive, auto& alternative) { fields(archive, alternative); });
  const std::size_t size = frame.size() - 4;
  assert(size <= kFrameLimitBytes);
  std::string length;
  ByteWriter(length).u32(static_cast<std::uint32_t>(size));
  return frame.replace(0, 4, length);
}

template <typename Message>
Result<Message> decode_frame(std::string_view frame, std::string_view sender) {
  Result<Message> result = Message();  // decoded in place: g++ 14 misjudges a move of the variant
  WireReader reader(frame);
  one_of(reader, *result, [](auto& archive, auto& alternative) { fields(archive, alternative); });
  if (reader.is_complete()) return result;
  return Error{ErrorCode::Refused, "malformed message from " + std::string(sender) + " (" +
                                       std::to_string(frame.size()) + " bytes, beginning with " +
                                       printable(frame) + ")"};
}

}  // namespace

std::size_t wire_size_bytes(const Failure& failure) {
  std::string bytes;
  WireWriter writer(bytes);
  Failure copy = failure;
  fields(writer, copy);
  return bytes.size();
}

std::string encode(const MemberMessage& message) { return encode_frame(message); }
std::string encode(const CoordinatorMessage& message) { return encode_frame(message); }

std::string encode_census(Census census) {
  std::string bytes;
  WireWriter writer(bytes);
  fields(writer, census);
  return bytes;
}

std::optional<Census> decode_census(std::string_view bytes) {
  Census census;
  WireReader reader(bytes);
  fields(reader, census);
  return reader.is_complete() ? std::optional(std::move(census)) : std::nullopt;
}

// The head: length, kind, number.
SharedResult::SharedResult(const QueryResult& result) {
  constexpr std::size_t kBeforeNumberBytes = 4 + 1;
  constexpr std::size_t kNumberBytes = 8;
  std::string frame = encode(CoordinatorMessage(result));
  head_ = frame.substr(0, kBeforeNumberBytes);
  frame.erase(0, kBeforeNumberBytes + kNumberBytes);
  body_ = std::make_shared<const std::string>(std::move(frame));
}

std::string SharedResult::head(std::uint64_t number) const {
  std::string head = head_;
  ByteWriter(head).u64(number);
  return head;
}

Result<MemberMessage> decode_member_message(std::string_view frame) {
  return decode_frame<MemberMessage>(frame, "a member");
}
Result<CoordinatorMessage> decode_coordinator_message(std::string_view frame) {
  return decode_frame<CoordinatorMessage>(frame, "the coordinator");
}

}  // namespace drun::rendezvous

#include "rendezvous/protocol/control_wire.h"

#include <cassert>
#include <utility>

#include "rendezvous/base/bytes.h"
#include "rendezvous/net/frame_reader.h"
#include "rendezvous/protocol/line_window.h"
#include "rendezvous/protocol/wire_fields.h"

namespace drun::rendezvous {
namespace {

constexpr WireRange kPort{0, 65535};
constexpr std::size_t kMostListed = 64;
constexpr WireRange kTerm{0, std::int64_t{1} << 60};
constexpr std::size_t kMessageBytes = std::size_t{8} << 10;
constexpr std::size_t kTracebackBytes = std::size_t{32} << 10;
constexpr std::size_t kTailLines = 20;
constexpr std::size_t kTailLineBytes = 2048;

}  // namespace

// --- Failures and outcomes

void fields(auto& archive, Exited& exited) { archive.integer(exited.code, {0, 255}); }
void fields(auto& archive, Killed& killed) {
  archive.integer(killed.signal, kSignal);
  archive.flag(killed.core_dumped);
}
void fields(auto& archive, NotStarted& not_started) {
  archive.integer(not_started.error_number, {0, 4095});
}

void fields(auto& archive, Hung& hung) { archive.text(hung.how, kSentenceBytes); }

void fields(auto& archive, Failure& failure) {
  counts(archive, failure.rank, failure.local_rank, failure.node_rank, failure.round);
  archive.text(failure.role, kNameBytes);
  archive.text(failure.host, kNameBytes);
  archive.integer(failure.pid, kPid);
  one_of(archive, failure.status);
  moment(archive, failure.time);
  archive.flag(failure.out_of_memory);
  archive.text(failure.program, kIdentityBytes);
  archive.text(failure.error_file, kIdentityBytes);
  archive.text(failure.message, kMessageBytes);
  archive.text(failure.traceback, kTracebackBytes);
  archive.list(failure.stderr_tail, kTailLines,
               [](auto& each, std::string& line) { each.text(line, kTailLineBytes); });
  archive.text(failure.stderr_file, kIdentityBytes);
}

void fields(auto& archive, AgedFailure& aged) {
  fields(archive, aged.failure);
  archive.duration(aged.age, kMostMicroseconds);
}

void fields(auto& archive, Error& error) {
  archive.integer(error.code, {0, static_cast<int>(ErrorCode::System)});
  archive.text(error.message, kSentenceBytes);
}

// Endings.
void fields(auto&, Succeeded&) {}
template <typename Archive>
void fields(Archive& archive, WorkersFailed& failed) {
  list_of(archive, failed.failures, kMostFailures);
  if constexpr (Archive::kIsReader) {
    if (failed.failures.empty()) archive.fail();  // there is always a root cause
  }
}
void fields(auto& archive, Interrupted& interrupted) {
  archive.integer(interrupted.signal, kSignal);
  optional_rank(archive, interrupted.node_rank);
  archive.text(interrupted.host, kNameBytes);
}
void fields(auto& archive, NodeLost& lost) {
  archive.integer(lost.node_rank, kCount);
  archive.text(lost.host, kNameBytes);
  archive.flag(lost.is_coordinator);
  archive.text(lost.reason, kSentenceBytes);
}
void fields(auto& archive, Preempted& preempted) { archive.text(preempted.reason, kSentenceBytes); }
void fields(auto& archive, NotRun& not_run) { fields(archive, not_run.error); }

void fields(auto& archive, PhaseTimes& times) {
  for (auto& time : times) archive.duration(time, kMostMilliseconds);
}
void fields(auto& archive, NodeTimes& times) {
  fields(archive, times.phases);
  archive.integer(times.current, {0, kPhaseCount - 1});
  optional_rank(archive, times.slowest_start);
  archive.duration(times.slowest_start_time, kMostMilliseconds);
}
void fields(auto& archive, JobTimes& times) {
  archive.integer(times.nodes, kCount);
  fields(archive, times.mean);
  for (LongestTime& longest : times.longest) {
    archive.duration(longest.time, kMostMilliseconds);
    archive.integer(longest.node_rank, kCount);
    optional_rank(archive, longest.rank);
  }
}

void fields(auto& archive, SlowRank& slow) {
  optional_rank(archive, slow.rank);
  archive.integer(slow.node_rank, kCount);
  archive.text(slow.host, kNameBytes);
  counts(archive, slow.round, slow.percent);
  archive.text(slow.evidence, kSentenceBytes);
  archive.flag(slow.is_slow);
}

void fields(auto& archive, LeftOut& node) {
  archive.integer(node.node_rank, kCount);
  archive.text(node.host, kNameBytes);
  archive.integer(node.round, kCount);
  archive.text(node.reason, kSentenceBytes);
}
void fields(auto& archive, Outcome& outcome) {
  one_of(archive, outcome.ending);
  archive.text(outcome.run_id, kIdentityBytes);
  counts(archive, outcome.node_count, outcome.world_size, outcome.restarts, outcome.max_restarts,
         outcome.failures_left_out);
  archive.duration(outcome.duration, kMostMilliseconds);
  list_of(archive, outcome.left_out, kMostLeftOut);
  fields(archive, outcome.times);
  list_of(archive, outcome.slow, kMostSlowRanks);
}

// --- Census

void fields(auto& archive, CensusNode& node) {
  optional_rank(archive, node.node_rank);
  archive.text(node.host, kNameBytes);
  archive.integer(node.workers, kCount);
  word(archive, node.presence, NodePresence::Lost);
  archive.text(node.answer, kMostStatusBytes);
  archive.duration(node.heard, kMostMilliseconds);
}

void fields(auto& archive, JobFacts& job) {
  archive.text(job.endpoint, kIdentityBytes);
  word(archive, job.phase, JobPhase::Finishing);
  counts(archive, job.min_nodes, job.max_nodes, job.joined_nodes, job.spares);
  optional_rank(archive, job.round);
  archive.flag(job.is_preflight);
  counts(archive, job.world_size, job.restarts, job.restarts_left, job.max_restarts);
  archive.duration(job.up, kMostMilliseconds);
  archive.duration(job.round_up, kMostMilliseconds);
  optional(archive, job.last_failure);
  list_of(archive, job.left_out, kMostLeftOut);
  fields(archive, job.times);
  list_of(archive, job.slow, kMostSlowRanks);
}

void fields(auto& archive, Census& census) {
  archive.text(census.note, kSentenceBytes);
  fields(archive, census.job);
  list_of(archive, census.nodes, kMostCensusNodes);
  archive.integer(census.nodes_not_listed, kCount);
  archive.list(census.missing_ranks, kMostMissingTold,
               [](auto& each, int& node_rank) { each.integer(node_rank, kCount); });
}

// Fails unless the roles cover all workers of the node.
template <typename Archive, typename Share>
void require_whole(Archive& archive, const std::vector<Share>& roles, int workers) {
  if constexpr (Archive::kIsReader) {
    if (!is_whole(roles, workers)) archive.fail();
  }
}

void fields(auto& archive, World& world) {
  archive.text(world.run_id, kIdentityBytes);
  counts(archive, world.round, world.restarts, world.max_restarts, world.node_rank,
         world.node_count, world.base_rank, world.local_world_size, world.world_size);
  archive.text(world.role, kNameBytes);
  counts(archive, world.role_base_rank, world.role_world_size);
  archive.text(world.master_addr, kIdentityBytes);
  archive.integer(world.master_port, kPort);
  flags(archive, world.use_agent_store, world.is_preflight);
  archive.list(world.roles, kMostRoleShares, [](auto& each, RoleRanks& share) {
    each.text(share.role, kNameBytes);
    counts(each, share.workers, share.base_rank, share.world_size);
  });
  require_whole(archive, world.roles, world.local_world_size);
}

void fields(auto& archive, NodeRecord& record) {
  archive.text(record.name, kRecordTextBytes);
  counts(archive, record.slot, record.losses);
  archive.flag(record.is_left_out);
  counts(archive, record.node_rank, record.round);
  archive.text(record.reason, kRecordTextBytes);
}

void fields(auto& archive, Past& past) {
  counts(archive, past.rounds, past.node_count);
  archive.duration(past.age, kMostMilliseconds);
  archive.text(past.coordinator, kNameBytes);
  archive.integer(past.restarts, kCount);
  archive.list(past.restart_ages, kMostRestartsTold,
               [](auto& each, Milliseconds& age) { each.duration(age, kMostMilliseconds); });
  list_of(archive, past.records, kMostRecords);
  optional(archive, past.failure);
  archive.flag(past.is_checked);
}

// --- Queries

// Bytes of an agent, which keeps the limit.
template <typename Archive>
void opaque(Archive& archive, std::string& bytes, std::size_t limit_bytes) {
  assert(Archive::kIsReader || bytes.size() <= limit_bytes);
  archive.text(bytes, limit_bytes);
}

void fields(auto& archive, Query& query) {
  archive.bits(query.number);
  word(archive, query.kind, QueryKind::Log);
  archive.integer(query.rank, kCount);
  opaque(archive, query.question, kMostQuestionBytes);
}
void fields(auto& archive, NodeQuery& query) {
  archive.bits(query.number);
  word(archive, query.kind, QueryKind::Log);
  opaque(archive, query.question, kMostQuestionBytes);
}
void fields(auto& archive, NodeAnswer& given) {
  archive.bits(given.number);
  opaque(archive, given.answer, kMostNodeAnswerBytes);
}
// The number comes first (SharedResult).
void fields(auto& archive, QueryResult& result) {
  archive.bits(result.number);
  archive.text(result.note, kSentenceBytes);
  opaque(archive, result.answer, kMostResultBytes);
}

// --- From members
void fields(auto& archive, Hello& hello) {
  archive.text(hello.run_id, kIdentityBytes);
  optional_rank(archive, hello.node_rank);
  counts(archive, hello.node_count, hello.local_world_size);
  archive.text(hello.role, kNameBytes);
  archive.text(hello.host, kNameBytes);
  archive.integer(hello.pid, kPid);
  archive.bits(hello.instance);
  archive.flag(hello.is_probe);
  counts(archive, hello.min_node_count, hello.slot);
  archive.flag(hello.is_coordinator);
  archive.list(hello.addresses, kMostAddressesTold, [](auto& each, std::string& address) {
    each.text(address, kMostAddressesToldBytes);
  });
  optional(archive, hello.past);
  archive.integer(hello.lost_term, kTerm);
  archive.flag(hello.gathers);
  archive.list(hello.roles, kMostRoleShares, [](auto& each, RoleShare& share) {
    each.text(share.role, kNameBytes);
    each.integer(share.workers, kCount);
  });
  require_whole(archive, hello.roles, hello.local_world_size);
}
void fields(auto& archive, Failed& failed) {
  archive.integer(failed.round, kCount);
  fields(archive, failed.first);
}
void fields(auto& archive, AllReturned& returned) { archive.integer(returned.round, kCount); }
void fields(auto& archive, Stopped& stopped) {
  archive.integer(stopped.round, kCount);
  list_of(archive, stopped.failures, kMostFailures);
  archive.integer(stopped.left_out, kCount);
  archive.text(stopped.unusable, kSentenceBytes);
  WorkProgress& progress = stopped.progress;
  archive.flag(progress.has_more);
  bool has_step = progress.step.has_value();
  archive.flag(has_step);
  if (has_step) archive.bits(progress.step ? *progress.step : progress.step.emplace());
}
void fields(auto& archive, Signaled& signaled) { archive.integer(signaled.signal, kSignal); }
void fields(auto&, Ping&) {}
void fields(auto& archive, HangSuspected& suspected) {
  archive.integer(suspected.round, kCount);
  archive.duration(suspected.settle, kMostMilliseconds);
  archive.list(suspected.groups, kMostSuspectGroups, [](auto& each, SuspectGroup& group) {
    rank_ranges(each, group.ranks, kMostSuspectRanges);
    each.list(group.pids, kMostSuspectPids, [](auto& one, int& pid) { one.integer(pid, kPid); });
    fields(each, group.first);
  });
}

void fields(auto& archive, Ballot& ballot) {
  archive.text(ballot.run_id, kIdentityBytes);
  archive.text(ballot.seats, kIdentityBytes);
  archive.integer(ballot.seat, kCount);
  archive.bits(ballot.instance);
  archive.bits(ballot.number);
  archive.integer(ballot.kind, {0, static_cast<int>(BallotKind::Release)});
  archive.integer(ballot.term, kTerm);
  archive.integer(ballot.rounds, kCount);
}

void fields(auto& archive, Lines& lines) {
  counts(archive, lines.round, lines.local_rank);
  flags(archive, lines.is_stderr, lines.is_shown, lines.is_labeled, lines.is_kept, lines.goes_on,
        lines.is_end);
  moment(archive, lines.time);
  archive.text(lines.text, kMostLinesTextBytes);
}

void fields(auto& archive, TimesReport& told) { fields(archive, told.times); }

void fields(auto& archive, SpeedReport& told) {
  NodeSpeed& speed = told.speed;
  counts(archive, told.round, speed.window);
  archive.duration(speed.length, kMostMilliseconds);
  word(archive, speed.measure, SpeedMeasure::Steps);
  archive.flag(speed.has_progress);
  archive.list(speed.amounts, kMostSpeedRanks,
               [](auto& each, int& amount) { each.integer(amount, kCount); });
  archive.integer(speed.stolen_permille, {0, 1000});
  archive.integer(speed.throttled_permille, {0, 1000});
  archive.flag(speed.is_hot);
}

void fields(auto& archive, LivenessReply& reply) { archive.bits(reply.check); }

// --- From the coordinator, and answers of seats
void fields(auto& archive, Welcome& welcome) {
  archive.duration(welcome.heartbeat_timeout, kMostMilliseconds);
  archive.integer(welcome.term, kTerm);
  archive.integer(welcome.line_window_bytes, kCount);
}
void fields(auto& archive, LinesTaken& taken) { archive.integer(taken.bytes, kCount); }
void fields(auto& archive, Waiting& waiting) {
  counts(archive, waiting.node_count, waiting.joined_count);
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
void fields(auto& archive, Refused& refused) { fields(archive, refused.error); }
void fields(auto& archive, WorldReady& ready) { fields(archive, ready.world); }
void fields(auto& archive, StopNotice& notice) {
  archive.integer(notice.signal, kSignal);
  archive.duration(notice.time, kMostMilliseconds);
}
void fields(auto& archive, Stop& stop) {
  archive.integer(stop.round, kCount);
  archive.text(stop.cause, kSentenceBytes);
  optional(archive, stop.notice);
}
void fields(auto& archive, Finish& finish) { fields(archive, finish.outcome); }
void fields(auto&, Pong&) {}
void fields(auto& archive, HangFound& found) {
  archive.integer(found.round, kCount);
  archive.text(found.cause, kSentenceBytes);
  opaque(archive, found.evidence, kMostResultBytes);
}
void fields(auto& archive, FaultInjected& told) {
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
void fields(auto& archive, NodeLeftOut& told) { fields(archive, told.node); }

void fields(auto& archive, SlowFound& told) { fields(archive, told.slow); }

void fields(auto& archive, Vote& vote) {
  archive.bits(vote.number);
  archive.bits(vote.instance);
  flags(archive, vote.is_granted, vote.is_fresh);
  archive.duration(vote.free_in, kMostMilliseconds);
  archive.integer(vote.term, kTerm);
  archive.integer(vote.rounds, kCount);
}
void fields(auto& archive, Follow& follow) {
  archive.text(follow.host, kIdentityBytes);
  archive.integer(follow.port, kPort);
  archive.integer(follow.term, kTerm);
}

void fields(auto& archive, Remember& remember) {
  list_of(archive, remember.records, kMostRecords);
  archive.integer(remember.restarts, kCount);
}

void fields(auto& archive, LivenessCheck& check) { archive.bits(check.check); }

namespace {

template <typename Message>
std::string encode_frame(Message message) {
  std::string frame(4, '\0');
  WireWriter writer(frame);
  one_of(writer, message);
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
  one_of(reader, *result);
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

#include "agent/diagnosis/hang_positions.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "agent/diagnosis/error_text.h"
#include "agent/diagnosis/flight_recorder.h"
#include "agent/diagnosis/gpu_faults.h"
#include "rendezvous/base/text.h"

namespace drun::agent {
namespace {

constexpr std::size_t kMostEvidenceTextLines = 2000;
constexpr std::size_t kMostRanges = 1024;
constexpr std::size_t kMostFlights = 1024;

bool holds(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

std::optional<int> rank_at(std::string_view text) {
  const auto number = leading_number<int>(text);
  return number && *number >= 0 && *number <= 10'000'000 ? number : std::nullopt;
}

// "in all_reduce #812 of a smaller group (4096 bytes)", "last ended all_reduce #811, not in one".
void read_doing(GroupPosition& position, std::string_view doing) {
  constexpr std::string_view kIn = "in ";
  constexpr std::string_view kLast = "last ended ";
  const bool is_inside = doing.starts_with(kIn);
  if (!is_inside && !doing.starts_with(kLast)) return;
  position.position = is_inside ? Position::Collective : Position::Outside;
  position.is_awaited = !is_inside;
  std::string_view rest = doing.substr(is_inside ? kIn.size() : kLast.size());
  const bool is_small = holds(rest, "of a smaller group");
  const std::size_t number = rest.find(" #");
  const std::string op(rest.substr(0, std::min(rest.find_first_of(" ,#("), rest.size())));
  if (is_inside && rest != "a collective") position.op = op;
  if (number != rest.npos && !is_small)
    position.number = leading_number<std::uint64_t>(rest.substr(number + 2));
  const std::size_t bytes = rest.find(" (");
  if (is_inside && bytes != rest.npos && holds(rest, " bytes)"))
    position.bytes = rest.substr(bytes + 2, rest.find(')', bytes) - bytes - 2);
}

// By NCCL's counts: "at all_reduce 811 in a communicator of 8, the others at 812 (NCCL)", or
// kAheadInNccl.
void read_nccl(GroupPosition& position, const StackGroup& group) {
  const std::string_view doing = group.doing;
  const bool is_ahead = group.nccl == NcclPosition::Ahead || doing == kAheadInNccl;
  if (is_ahead && position.position == Position::Unknown) position.position = Position::Collective;
  if (group.nccl != NcclPosition::Behind && (is_ahead || !doing.ends_with("(NCCL)"))) return;
  position.position = Position::Outside;
  position.is_awaited = true;
  constexpr std::string_view kAt = "at ";
  const std::string_view op = doing.substr(std::min(kAt.size(), doing.size()));
  if (doing.starts_with(kAt) && !op.starts_with("operation "))
    position.op = op.substr(0, op.find(' '));
}

struct StackFrame {
  std::string_view function;
  std::string_view file;
};

StackFrame frame_of(std::string_view line) {
  line = trimmed(line);
  const std::size_t open = line.rfind(" (");
  if (open == line.npos || !line.ends_with(')')) return {line, {}};
  return {line.substr(0, open), line.substr(open + 2, line.size() - open - 3)};
}

// The frames of the main thread of the worker's own process: Python's main thread, or the first.
struct MainThread {
  std::string_view process{};  // "process python, stopped"
  std::vector<std::string_view> frames{};
  bool has_loading_process = false;
  std::string gloo_op{};  // that another thread carries out, by its C++ frames
};

// "c10d::AsyncAllreduceWork::allreduce" -> "all_reduce"; empty: another function.
std::string gloo_op_of(std::string_view frame) {
  constexpr std::array kOps{std::pair{"AsyncAllreduce", "all_reduce"},
                            std::pair{"AsyncBroadcast", "broadcast"},
                            std::pair{"AsyncAllgather", "all_gather"},
                            std::pair{"AsyncBarrier", "barrier"},
                            std::pair{"AsyncReduceScatter", "reduce_scatter"},
                            std::pair{"AsyncReduce", "reduce"},
                            std::pair{"AsyncGather", "gather"},
                            std::pair{"AsyncScatter", "scatter"},
                            std::pair{"AsyncAlltoall", "all_to_all"},
                            std::pair{"AsyncSparseAllreduce", "all_reduce"}};
  if (!holds(frame, "c10d::")) return "";
  for (const auto& [name, op] : kOps)
    if (holds(frame, name)) return op;
  return "";
}

MainThread main_thread_of(const std::vector<std::string>& lines) {
  MainThread main;
  int processes = 0;
  int threads = 0;
  bool is_python_main = false;
  bool is_taken = false;
  for (const std::string& line : lines) {
    if (is_flight_line(line)) continue;
    if (processes == 1 && main.gloo_op.empty()) main.gloo_op = gloo_op_of(line);
    if (line.starts_with("process ")) {
      if (++processes == 1)
        main.process = line;
      else if (line.starts_with("process pt_data_worker"))
        main.has_loading_process = true;
    } else if (processes > 1) {
      continue;
    } else if (line.starts_with("  thread")) {
      const bool is_named = holds(line, "MainThread");
      is_taken = ++threads == 1 || (is_named && !is_python_main);
      if (is_named) is_python_main = true;
      if (is_taken) main.frames.clear();
    } else if (is_taken) {
      main.frames.push_back(line);
    }
  }
  return main;
}

bool is_torch_file(std::string_view file) {
  constexpr auto kFiles = std::to_array<std::string_view>(
      {"distributed_c10d.py", "c10d_logger.py", "_contextlib.py", "threading.py", "dataloader.py",
       "selectors.py", "connection.py", "queues.py", "queue.py"});
  return std::any_of(kFiles.begin(), kFiles.end(),
                     [file](std::string_view each) { return file.starts_with(each); });
}

// Of the end of an interpreter or a program.
bool is_of_end(const StackFrame& frame) {
  return frame.function == "Py_FinalizeEx" || frame.function == "Py_Finalize" ||
         frame.function == "__run_exit_handlers" ||
         (frame.function == "_shutdown" && frame.file.starts_with("threading.py"));
}

// From Python frames, C++ frames or, without a debugger, the state of the main thread.
void read_frames(GroupPosition& position, const MainThread& main) {
  const auto ends = [](std::string_view line) { return is_of_end(frame_of(line)); };
  if (std::any_of(main.frames.begin(), main.frames.end(), ends)) {
    position.position = Position::Ending;
    position.place = trimmed(main.frames.front());
    return;
  }
  for (const std::string_view line : main.frames) {
    const StackFrame frame = frame_of(line);
    const bool is_found = position.position != Position::Unknown;
    if (is_found && !is_torch_file(frame.file) && frame.file.find(".py:") != frame.file.npos) {
      position.place = frame.file;
      return;
    }
    if (is_found) continue;
    if (frame.file.starts_with("distributed_c10d.py") && is_collective(frame.function)) {
      position.position = Position::Collective;
      position.op = frame.function;
    } else if (frame.file.starts_with("dataloader.py")) {
      position.position = Position::DataLoader;
    } else if (holds(frame.function, "gloo::transport::") ||
               holds(frame.function, "c10d::Work::wait") ||
               holds(frame.function, "c10d::ProcessGroup") ||
               holds(frame.function, "AsyncWork::wait")) {
      position.position = Position::Collective;
    }
  }
  if (position.position == Position::Collective && position.op.empty()) position.op = main.gloo_op;
  if (position.position != Position::Unknown || main.frames.empty()) return;
  const std::string_view state = trimmed(main.frames.front());
  const bool is_kernel = state == "running" || state.starts_with("sleeping") ||
                         state.starts_with("stuck in the kernel");
  if (!is_kernel) {  // a debugger's, in no call that is known
    const StackFrame frame = frame_of(state);
    const bool sleeps = holds(frame.function, "nanosleep") || frame.function == "sleep";
    const bool polls = holds(frame.function, "poll") && !holds(frame.function, "epoll");
    if (polls && main.has_loading_process)
      position.position = Position::DataLoader;
    else if (sleeps || frame.file.find(".py:") != frame.file.npos)
      position.position = Position::Outside;
  } else if (holds(state, "poll") && !holds(state, "epoll") && main.has_loading_process) {
    position.position = Position::DataLoader;
  } else if (holds(state, "futex") || holds(state, "poll")) {
    position.position = Position::Waits;
  } else {
    position.position = Position::Outside;
    position.is_guessed = true;
  }
  position.place = state;
}

// By the Flight Recorder: in the first call that has not ended, or in none.
void read_flight(GroupPosition& position, const std::vector<std::string>& lines) {
  const FlightDump dump = flight_dump_of(0, lines);
  if (dump.calls.empty()) return;
  position.position = Position::Outside;
  for (const FlightCall& call : dump.calls) {
    if (call.state == CallState::Completed) continue;
    position.position = Position::Collective;
    position.op = call.op;
    position.place = call.place;
    return;
  }
}

struct Placed {
  const StackGroup* group = nullptr;
  GroupPosition at{};
};

RankRanges ranks_at(const std::vector<Placed>& placed, const auto& is_wanted) {
  RankRanges ranks;
  for (const Placed& each : placed)
    if (is_wanted(each))
      ranks.insert(ranks.end(), each.group->ranks.begin(), each.group->ranks.end());
  normalize(ranks);
  return ranks;
}

std::string words_of(const Placed& placed) {
  const GroupPosition& at = placed.at;
  std::string text = ranks_text(placed.group->ranks) + ": ";
  if (!placed.group->doing.empty()) {
    text += placed.group->doing;
  } else {
    switch (at.position) {
      case Position::Collective:
        text += at.op.empty() ? "in a collective" : "in " + at.op;
        break;
      case Position::Stopped:
        text += "stopped by a signal or a debugger";
        break;
      case Position::DataLoader:
        text += "waits for data";
        break;
      case Position::Ending:
        text += "is ending";
        break;
      case Position::Ended:
        text += "has ended";
        break;
      case Position::Waits:
      case Position::Outside:
      case Position::Unknown:
        text += at.place.empty() ? "nothing known" : at.place;
        return evidence_text(text);
    }
  }
  if (!at.place.empty()) text += ", " + at.place;
  return evidence_text(text);
}

void add_evidence(Diagnosis& diagnosis, const std::vector<Placed>& placed) {
  // Those at fault first, then the others.
  for (const bool is_first : {true, false}) {
    for (const Placed& each : placed) {
      const bool is_blamed = !intersection(each.group->ranks, diagnosis.ranks).empty();
      if (is_blamed == is_first && diagnosis.evidence.size() < kMostEvidenceLines)
        diagnosis.evidence.push_back(words_of(each));
    }
  }
}

std::string are(const RankRanges& ranks, const char* one, const char* many) {
  return ranks_text(ranks) + (count_of(ranks) == 1 ? one : many);
}

// Operations that need buffers of one size on all ranks.
bool needs_equal_bytes(std::string_view op) {
  return op == "all_reduce" || op == "broadcast" || op == "reduce" || op == "all_gather" ||
         op == "reduce_scatter";
}

// The calls of ranks that are in a collective, where they differ: each with its ranks.
CallGroups different_calls(const std::vector<Placed>& placed) {
  CallGroups calls;
  std::optional<std::uint64_t> number;
  bool is_uniform = true;
  bool has_numbers = true;
  for (const Placed& each : placed) {
    if (each.at.position != Position::Collective || each.at.op.empty()) continue;
    std::string call = each.at.op;
    if (needs_equal_bytes(each.at.op) && !each.at.bytes.empty()) call += " (" + each.at.bytes + ")";
    RankRanges& ranks = calls[call];
    ranks.insert(ranks.end(), each.group->ranks.begin(), each.group->ranks.end());
    normalize(ranks);
    has_numbers = has_numbers && each.at.number.has_value();
    if (number && each.at.number && *number != *each.at.number) is_uniform = false;
    if (each.at.number) number = each.at.number;
  }
  // A rank that is behind has not made the call that the others wait in.
  if (calls.size() < 2 || (has_numbers && !is_uniform)) return {};
  return calls;
}

// From lines of the kernel log, which are among those of the ranks that they may concern. If there
// are several, the one that concerns the fewest ranks.
std::optional<Diagnosis> by_kernel_log(const std::vector<Placed>& placed) {
  std::map<std::string_view, RankRanges> ranks;
  for (const Placed& each : placed)
    for (const std::string_view line : each.group->lines)
      if (const auto parsed = parse_kernel_log_line(line); parsed && parse_gpu_fault(parsed->text))
        ranks[line].insert(ranks[line].end(), each.group->ranks.begin(), each.group->ranks.end());
  if (ranks.empty()) return std::nullopt;
  for (auto& [line, own] : ranks) normalize(own);
  const auto& [line, own] =
      *std::min_element(ranks.begin(), ranks.end(), [](const auto& one, const auto& other) {
        return count_of(one.second) < count_of(other.second);
      });
  const int node = parse_kernel_log_line(line)->node;
  Diagnosis diagnosis = hardware_of(node, own, *parse_gpu_fault(line), line);
  add_evidence(diagnosis, placed);
  return diagnosis;
}

std::vector<FlightDump> flights_of(const Evidence& evidence) {
  std::vector<FlightDump> dumps;
  for (const StackGroup& group : evidence.groups) {
    const FlightDump dump = flight_dump_of(0, group.lines);
    if (dump.calls.empty()) continue;
    for (const RankRange& range : group.ranks) {
      for (int rank = range.first; rank <= range.last && dumps.size() < kMostFlights; ++rank) {
        dumps.push_back(dump);
        dumps.back().rank = rank;
      }
    }
  }
  return dumps;
}

}  // namespace

RankRanges read_ranks(std::string_view text) {
  RankRanges ranks;
  if (text.starts_with("ranks "))
    text.remove_prefix(6);
  else if (text.starts_with("rank "))
    text.remove_prefix(5);
  else
    return {};
  for (std::string_view part : split(text, ',')) {
    part = trimmed(part);
    const std::optional<int> first = rank_at(part);
    if (!first || ranks.size() >= kMostRanges) return ranks;
    const std::size_t dash = part.find('-');
    const std::optional<int> last = dash == part.npos ? first : rank_at(part.substr(dash + 1));
    if (!last || *last < *first) return {};
    ranks.push_back({*first, *last});
  }
  normalize(ranks);
  return ranks;
}

RankRanges ranks_that_differ(const std::vector<RankRanges>& groups) {
  std::size_t most = 0;
  std::size_t with_most = 0;
  for (const RankRanges& group : groups) {
    if (count_of(group) > most) with_most = 0;
    most = std::max(most, count_of(group));
    if (count_of(group) == most) ++with_most;
  }
  RankRanges ranks;
  for (const RankRanges& group : groups)
    if (with_most > 1 || count_of(group) < most)
      ranks.insert(ranks.end(), group.begin(), group.end());
  normalize(ranks);
  return ranks;
}

Diagnosis desync_of(CallGroups& calls, const char* one, const char* many) {
  Diagnosis diagnosis{.fault = FaultClass::Desync, .restart_helps = RestartHelps::No};
  std::vector<RankRanges> groups;
  std::string text;
  for (auto& [call, ranks] : calls) {
    normalize(ranks);
    groups.push_back(ranks);
    if (groups.size() <= 3) text += (text.empty() ? "" : ", ") + are(ranks, one, many) + call;
  }
  diagnosis.ranks = ranks_that_differ(groups);
  diagnosis.summary = "desync: " + text + (groups.size() > 3 ? ", and others" : "");
  diagnosis.advice = kSameCallsAdvice;
  return diagnosis;
}

Diagnosis hardware_of(int node, const RankRanges& ranks, const GpuFault& fault,
                      std::string_view line) {
  Diagnosis diagnosis{
      .fault = FaultClass::Hardware,
      .ranks = ranks,
      .summary = "node " + std::to_string(node) + " (" + ranks_text(ranks) + "): " + fault.words,
      .evidence = {evidence_text(line)},
      .restart_helps = RestartHelps::Yes,
      .advice = advice_of(fault.remedy)};
  if (excludes_node(fault.remedy)) diagnosis.exclude_node = node;
  return diagnosis;
}

GroupPosition position_of(const StackGroup& group) {
  GroupPosition position;
  if (group.doing == "has ended") {
    position.position = Position::Ended;
    return position;
  }
  const MainThread main = main_thread_of(group.lines);
  read_doing(position, group.doing);
  read_nccl(position, group);
  GroupPosition of_frames;
  if (holds(main.process, ", stopped"))
    of_frames.position = Position::Stopped;
  else
    read_frames(of_frames, main);
  const bool are_frames_vague =
      of_frames.position == Position::Unknown || of_frames.position == Position::Waits;
  if (are_frames_vague) read_flight(of_frames, group.lines);
  const bool is_counted = position.position != Position::Unknown;
  // Counts are better evidence than frames for whether a rank is in a collective; frames show why
  // one is not.
  const bool adds =
      !is_counted ||
      (position.position == Position::Outside &&
       (of_frames.position == Position::DataLoader || of_frames.position == Position::Stopped));
  if (adds) position.position = of_frames.position;
  position.is_guessed = adds && of_frames.is_guessed;
  if (position.op.empty() && position.position == Position::Collective) position.op = of_frames.op;
  position.place = of_frames.place;
  return position;
}

bool is_every_rank_in_collective(const Evidence& evidence, const RankRanges& others) {
  bool is_any = false;
  for (const StackGroup& group : evidence.groups) {
    if (difference(group.ranks, others).empty()) continue;
    if (position_of(group).position != Position::Collective) return false;
    is_any = true;
  }
  return is_any;
}

RankRanges ending_ranks(const Evidence& evidence) {
  RankRanges ranks;
  for (const StackGroup& group : evidence.groups)
    if (position_of(group).position == Position::Ending)
      ranks.insert(ranks.end(), group.ranks.begin(), group.ranks.end());
  normalize(ranks);
  return ranks;
}

Evidence read_evidence(std::string_view text) {
  Evidence evidence;
  std::size_t count = 0;
  for (const std::string_view line : split(text, '\n')) {
    if (++count > kMostEvidenceTextLines) break;
    if (line.starts_with("  ")) {
      if (!evidence.groups.empty() && evidence.groups.back().lines.size() < kMostStackLines)
        evidence.groups.back().lines.emplace_back(line.substr(2, kStackLineBytes));
      continue;
    }
    if (line.starts_with("note: ")) {
      if (evidence.notes.size() < kMostEvidenceNotes)
        evidence.notes.emplace_back(line.substr(6, kStackLineBytes));
      continue;
    }
    const std::size_t colon = line.find(':');
    const std::size_t source = line.rfind(" (");
    if (colon == line.npos || source == line.npos || source < colon || !line.ends_with(')'))
      continue;
    StackGroup group{.ranks = read_ranks(line.substr(0, colon))};
    if (group.ranks.empty() || evidence.groups.size() >= kMostStackGroups) continue;
    std::string_view doing = trimmed(line.substr(colon + 1, source - colon - 1));
    constexpr std::string_view kQuiet = "no sign of life";
    if (doing.ends_with(kQuiet)) {
      group.is_quiet = true;
      doing.remove_suffix(kQuiet.size());
      if (doing.ends_with(", ")) doing.remove_suffix(2);
    }
    group.doing = doing.substr(0, kStackLineBytes);
    group.source = line.substr(source + 2, line.size() - source - 3);
    evidence.groups.push_back(std::move(group));
  }
  return evidence;
}

namespace {

// A hang, as the positions of its ranks show it.
struct Hang {
  std::vector<Placed> placed{};
  RankRanges suspects{};
  int world_size = 0;
  // The call that most ranks wait in, by count where it is known.
  std::string op{};  // empty: not known
  std::optional<std::uint64_t> number{};
  RankRanges waiting{};   // in that call, or probably in one
  bool is_known = false;  // that they are in a collective
};

RankRanges ranks_at(const Hang& hang, Position position) {
  return ranks_at(hang.placed,
                  [position](const Placed& each) { return each.at.position == position; });
}

bool is_behind(const Hang& hang, const Placed& placed) {
  return placed.at.position == Position::Collective && placed.at.number && hang.number &&
         *placed.at.number < *hang.number;
}

void find_waiting(Hang& hang) {
  const bool is_counted = std::any_of(hang.placed.begin(), hang.placed.end(),
                                      [](const Placed& each) { return each.at.is_awaited; });
  // Where counts show the late ranks, one that computes may wait: CUDA and NCCL wait busily.
  for (Placed& each : hang.placed)
    if (is_counted && each.at.is_guessed && !each.at.is_awaited) each.at.position = Position::Waits;
  for (const Placed& each : hang.placed) {
    if (each.at.position != Position::Collective) continue;
    const std::optional<std::uint64_t>& number = each.at.number;
    if (hang.op.empty() || (number && (!hang.number || *number > *hang.number)))
      hang.op = each.at.op;
    if (number) hang.number = std::max(hang.number.value_or(0), *number);
  }
  hang.waiting = ranks_at(hang.placed, [&hang](const Placed& each) {
    return each.at.position == Position::Collective && !is_behind(hang, each);
  });
  hang.is_known = !hang.waiting.empty();
  if (!hang.is_known) hang.waiting = ranks_at(hang, Position::Waits);
  if (hang.waiting.empty() && is_counted)
    hang.waiting = ranks_at(hang.placed, [](const Placed& each) { return !each.at.is_awaited; });
  for (const Placed& each : hang.placed)
    if (hang.op.empty() && each.at.is_awaited) hang.op = each.at.op;
}

std::optional<Diagnosis> by_different_calls(const Hang& hang) {
  CallGroups calls = different_calls(hang.placed);
  const auto is_cause = [](const Placed& each) {
    return each.at.position == Position::Stopped || each.at.position == Position::DataLoader ||
           each.at.position == Position::Outside;
  };
  const auto is_counted = [](const Placed& each) { return each.at.number.has_value(); };
  // Unless calls are counted, a rank that is in no call explains more: ranks of smaller groups may
  // wait for it in other calls.
  const bool has_other_cause = std::any_of(hang.placed.begin(), hang.placed.end(), is_cause) &&
                               std::none_of(hang.placed.begin(), hang.placed.end(), is_counted);
  if (calls.empty() || has_other_cause) return std::nullopt;
  Diagnosis diagnosis = desync_of(calls, " is in ", " are in ");
  add_evidence(diagnosis, hang.placed);
  return diagnosis;
}

struct Blame {
  FaultClass fault = FaultClass::Hang;
  RankRanges ranks{};
  std::string summary{};
  RestartHelps helps = RestartHelps::Unknown;
  std::string advice{};
};

// Ranks whose own state explains why they do not take part.
std::optional<Blame> blame_by_state(const Hang& hang) {
  const auto can_blame = [&hang](const RankRanges& ranks) {
    return !ranks.empty() && (!hang.waiting.empty() || !intersection(ranks, hang.suspects).empty());
  };
  const RankRanges stopped = ranks_at(hang, Position::Stopped);
  if (can_blame(stopped))
    return Blame{
        FaultClass::MissingRank, stopped,
        are(stopped, " is stopped", " are stopped") + " by a signal or a debugger; the others wait",
        RestartHelps::Yes, "find out what sends SIGSTOP; SIGCONT lets it continue"};
  const RankRanges loading = ranks_at(hang, Position::DataLoader);
  if (can_blame(loading))
    return Blame{FaultClass::DataLoader, loading,
                 are(loading, " waits", " wait") + " for data in the DataLoader",
                 RestartHelps::Unknown,
                 "check the storage and the dataset; DataLoader(timeout=...) makes it an error"};
  if (hang.waiting.empty()) return std::nullopt;
  const auto while_others_wait = [&hang](const RankRanges& ranks, const char* one,
                                         const char* many) {
    return Blame{FaultClass::MissingRank, ranks,
                 are(ranks, one, many) + " while the others wait in " +
                     (hang.op.empty() ? "a collective" : hang.op),
                 RestartHelps::No, "make every rank take the same number of steps"};
  };
  const RankRanges ended = ranks_at(hang, Position::Ended);
  if (!ended.empty()) return while_others_wait(ended, " has ended", " have ended");
  const RankRanges ending = ranks_at(hang, Position::Ending);
  if (!ending.empty()) return while_others_wait(ending, " is ending", " are ending");
  return std::nullopt;
}

// `late`: ranks that are outside of a collective, or behind by their counts.
std::optional<Blame> blame_late(const Hang& hang, RankRanges late) {
  if (late.empty() && hang.is_known)
    late = ranks_at(hang.placed, [](const Placed& each) {
      return each.at.position == Position::Unknown || each.at.position == Position::Waits;
    });
  if (hang.waiting.empty() || late.empty()) return std::nullopt;
  return Blame{FaultClass::MissingRank, late,
               are(late, " has not arrived in ", " have not arrived in ") +
                   (hang.op.empty() ? "the collective that the others wait in" : hang.op),
               RestartHelps::Unknown,
               count_of(late) == 1
                   ? "look at the stack of that rank to see what it does instead"
                   : "look at the stacks of those ranks to see what they do instead"};
}

// No rank stands out.
Blame blame_none(const Hang& hang) {
  const auto world_size = static_cast<std::size_t>(std::max(hang.world_size, 1));
  if (hang.is_known && world_size > 1 && count_of(hang.waiting) == world_size)
    return {FaultClass::Network,
            {},
            "all ranks wait in the same collective" + (hang.op.empty() ? "" : ": " + hang.op),
            RestartHelps::Unknown,
            "check the network between the nodes (drun doctor) and the GPUs"};
  return {FaultClass::Hang, hang.suspects,
          world_size > 1 && count_of(hang.suspects) >= world_size
              ? "all ranks hang, and nothing shows which one the others wait for"
              : are(hang.suspects, " hangs", " hang"),
          RestartHelps::Unknown,
          "install py-spy on the nodes, so that drun can show what each rank does"};
}

}  // namespace

Diagnosis diagnose_hang(const Evidence& evidence, const RankRanges& suspects, int world_size) {
  Hang hang{.suspects = suspects, .world_size = world_size};
  for (const StackGroup& group : evidence.groups)
    if (!group.ranks.empty()) hang.placed.push_back({&group, position_of(group)});
  find_waiting(hang);
  if (std::optional<Diagnosis> found = by_kernel_log(hang.placed)) return *std::move(found);
  const Diagnosis recorded = diagnose_calls(flights_of(evidence));
  if (recorded.fault == FaultClass::Desync) return recorded;
  if (std::optional<Diagnosis> found = by_different_calls(hang)) return *std::move(found);
  std::optional<Blame> blame = blame_by_state(hang);
  if (!blame) {
    const RankRanges late = ranks_at(hang.placed, [&hang](const Placed& each) {
      return each.at.position == Position::Outside || is_behind(hang, each);
    });
    if (recorded.fault == FaultClass::MissingRank && (late.empty() || !hang.is_known))
      return recorded;
    blame = blame_late(hang, late);
  }
  if (!blame) blame = blame_none(hang);
  Diagnosis diagnosis{.fault = blame->fault,
                      .ranks = std::move(blame->ranks),
                      .summary = std::move(blame->summary),
                      .restart_helps = blame->helps,
                      .advice = std::move(blame->advice)};
  add_evidence(diagnosis, hang.placed);
  if (diagnosis.evidence.empty())
    diagnosis.evidence.push_back("no stacks; suspected: " + ranks_text(suspects));
  return diagnosis;
}

}  // namespace drun::agent

#include "agent/diagnosis/flight_recorder.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <span>
#include <utility>

#include "agent/diagnosis/hang_positions.h"
#include "agent/diagnosis/pickle.h"
#include "rendezvous/base/bytes.h"
#include "rendezvous/base/foreign_json.h"
#include "rendezvous/base/text.h"

namespace drun::agent {
namespace {

using pickle::Document;
using pickle::NodeId;

constexpr std::size_t kNameBytes = 80;
constexpr std::size_t kMostSizes = 8;
constexpr std::size_t kMostDimensions = 8;
constexpr std::size_t kMostRecordedFrames = 64;
constexpr std::size_t kMostGroups = 1024;
constexpr std::size_t kMostMembers = 65'536;

std::optional<std::string_view> text_in(const Document& document, NodeId dict,
                                        std::string_view key) {
  const auto id = document.find(dict, key);
  return id ? document.text(*id) : std::nullopt;
}

std::string as_name(std::string_view text) {
  return std::string(rendezvous::cut_text(text, kNameBytes));
}

std::string name_at(const Document& document, NodeId dict, std::string_view key) {
  return as_name(text_in(document, dict, key).value_or(""));
}

// Empty: there is no such list.
std::span<const NodeId> items_in(const Document& document, NodeId dict, std::string_view key) {
  const auto id = document.find(dict, key);
  const auto* items = id ? document.items(*id) : nullptr;
  return items == nullptr ? std::span<const NodeId>() : *items;
}

std::optional<std::int64_t> number_in(const Document& document, NodeId dict, std::string_view key) {
  const auto id = document.find(dict, key);
  return id ? document.number(*id) : std::nullopt;
}

bool flag_in(const Document& document, NodeId dict, std::string_view key) {
  const auto id = document.find(dict, key);
  return id && document.flag(*id).value_or(false);
}

// "[4, 3]"; of several tensors "[4, 3], [2]".
std::string sizes_text(const Document& document, NodeId dict, std::string_view key) {
  const std::span<const NodeId> tensors = items_in(document, dict, key);
  std::string text;
  for (std::size_t i = 0; i < std::min(tensors.size(), kMostSizes); ++i) {
    const auto* sizes = document.items(tensors[i]);
    if (sizes == nullptr) continue;
    text += text.empty() ? "[" : ", [";
    for (std::size_t k = 0; k < std::min(sizes->size(), kMostDimensions); ++k)
      text += (k == 0 ? "" : ", ") + std::to_string(document.number((*sizes)[k]).value_or(-1));
    text += sizes->size() > kMostDimensions ? ", ...]" : "]";
  }
  if (tensors.size() > kMostSizes)
    text += " and " + std::to_string(tensors.size() - kMostSizes) + " more";
  return text;
}

std::string types_text(const Document& document, NodeId dict, std::string_view key) {
  const std::span<const NodeId> types = items_in(document, dict, key);
  std::string text;
  for (std::size_t i = 0; i < std::min(types.size(), kMostSizes); ++i) {
    const auto name = document.text(types[i]);
    if (name) text += (text.empty() ? "" : ", ") + std::string(rendezvous::cut_text(*name, 24));
  }
  return text;
}

// The innermost frame that is not torch's.
std::string place_of(const Document& document, NodeId entry) {
  const std::span<const NodeId> frames = items_in(document, entry, "frames");
  for (std::size_t i = 0; i < std::min(frames.size(), kMostRecordedFrames); ++i) {
    const NodeId frame = frames[i];
    const auto path = text_in(document, frame, "filename");
    if (!path || path->find("/torch/") != path->npos) continue;
    const std::string line = std::to_string(number_in(document, frame, "line").value_or(0));
    const std::string name = name_at(document, frame, "name");
    return as_name(path->substr(path->rfind('/') + 1)) + ":" + line +
           (name.empty() || name == "<module>" ? "" : " in " + name);
  }
  return "";
}

// In the order of CallState.
constexpr std::array<std::string_view, 3> kStates{"scheduled", "started", "completed"};

CallState state_named(std::string_view word) {
  const auto* const found = std::find(kStates.begin(), kStates.end(), word);
  return found == kStates.end() ? CallState::Scheduled
                                : static_cast<CallState>(found - kStates.begin());
}

// Gloo's calls stay "scheduled", and are retired when they are done.
CallState state_of(const Document& document, NodeId entry) {
  return flag_in(document, entry, "retired") ? CallState::Completed
                                             : state_named(name_at(document, entry, "state"));
}

// "[0, 1]", as text.
RankRanges ranks_in(std::string_view text) {
  RankRanges ranks;
  while (ranks.size() < kMostMembers) {
    const std::size_t digit = text.find_first_of("0123456789");
    if (digit == text.npos) break;
    text.remove_prefix(digit);
    int rank = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), rank);
    if (ec != std::errc()) return {};
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    ranks.push_back({rank, rank});
  }
  normalize(ranks);
  return ranks;
}

// "gloo:all_reduce" -> "all_reduce"; "nccl:_all_gather_base" too.
std::string op_of(std::string name) {
  if (const std::size_t colon = name.find(':'); colon != name.npos) name.erase(0, colon + 1);
  constexpr std::array kSame{std::pair{"_all_gather_base", "all_gather"},
                             std::pair{"_reduce_scatter_base", "reduce_scatter"},
                             std::pair{"all_gather_single", "all_gather"},
                             std::pair{"reduce_scatter_single", "reduce_scatter"}};
  for (const auto& [other, op] : kSame)
    if (name == other) return op;
  return name;
}

std::optional<FlightCall> read_call(const Document& document, NodeId entry) {
  const auto number = number_in(document, entry, "collective_seq_id");
  if (!number || flag_in(document, entry, "is_p2p")) return std::nullopt;
  FlightCall call{.number = *number,
                  .op = op_of(name_at(document, entry, "profiling_name")),
                  .sizes = sizes_text(document, entry, "input_sizes"),
                  .types = types_text(document, entry, "input_dtypes"),
                  .state = state_of(document, entry),
                  .place = place_of(document, entry)};
  const std::span<const NodeId> names = items_in(document, entry, "process_group");
  if (!names.empty()) call.group = as_name(document.text(names[0]).value_or(""));
  return call;
}

// Operations whose inputs are of one size on all ranks.
bool needs_equal_inputs(std::string_view op) {
  return op == "all_reduce" || op == "broadcast" || op == "reduce" || op == "all_gather" ||
         op == "reduce_scatter" || op == "gather";
}

struct Member {
  int rank = 0;
  std::map<std::int64_t, const FlightCall*> calls{};
};

struct GroupCalls {
  std::string name{};
  std::string description{};
  std::vector<Member> members{};
};

std::vector<GroupCalls> groups_of(const std::map<int, const FlightDump*>& dumps) {
  // Groups of one name on other ranks are different groups.
  std::map<std::pair<std::string, std::string>, GroupCalls> groups;
  for (const auto& [rank, dump] : dumps) {
    std::map<std::string, GroupCalls*> own;
    const auto group_of = [&, rank = rank, dump = dump](const std::string& name) {
      GroupCalls*& group = own[name];
      if (group != nullptr) return group;
      const auto known = dump->groups.find(name);
      const std::string ranks = known == dump->groups.end() ? "" : ranks_text(known->second.ranks);
      group = &groups[{name, ranks}];
      group->name = name;
      if (known != dump->groups.end()) group->description = known->second.description;
      group->members.push_back({.rank = rank, .calls = {}});
      return group;
    };
    for (const auto& [name, about] : dump->groups)
      if (about.ranks.empty() || contains(about.ranks, rank)) group_of(name);
    for (const FlightCall& call : dump->calls)
      group_of(call.group)->members.back().calls.emplace(call.number, &call);
  }
  // Every rank is in the default group, also one that has made no call in it.
  for (auto& [key, group] : groups) {
    if (group.description != "default_pg" || !key.second.empty()) continue;
    std::set<int> there;
    for (const Member& member : group.members) there.insert(member.rank);
    for (const auto& [rank, dump] : dumps)
      if (!there.contains(rank)) group.members.push_back({.rank = rank, .calls = {}});
  }
  std::vector<GroupCalls> list;
  list.reserve(groups.size());
  for (auto& [key, group] : groups) list.push_back(std::move(group));
  return list;
}

struct Finding {
  FaultClass fault = FaultClass::None;
  const GroupCalls* group = nullptr;
  std::int64_t number = 0;
  RankRanges ranks{};
};

std::string call_text(const FlightCall& call) {
  return call.op + (call.sizes.empty() ? "" : " of " + call.sizes);
}

// The part of a call that must be equal on all ranks.
std::string key_of(const FlightCall& call) {
  return needs_equal_inputs(call.op) ? call_text(call) + call.types : call.op;
}

std::optional<Finding> first_difference(const GroupCalls& group) {
  if (group.members.size() < 2) return std::nullopt;
  // Older calls may have left the buffers of some ranks.
  std::int64_t first = 0;
  std::int64_t last = -1;
  bool has_calls = false;
  for (const Member& member : group.members) {
    if (member.calls.empty()) continue;
    const std::int64_t begin = member.calls.begin()->first;
    first = has_calls ? std::max(first, begin) : begin;
    last = has_calls ? std::max(last, member.calls.rbegin()->first) : member.calls.rbegin()->first;
    has_calls = true;
  }
  if (!has_calls) return std::nullopt;
  // Only numbers that some rank has; they need not be contiguous.
  std::map<std::int64_t, std::vector<std::pair<int, const FlightCall*>>> by_number;
  for (const Member& member : group.members)
    for (auto call = member.calls.lower_bound(first); call != member.calls.end(); ++call)
      by_number[call->first].emplace_back(member.rank, call->second);
  for (const auto& [number, calls] : by_number) {
    std::map<std::string, RankRanges> same;
    RankRanges waiting;
    RankRanges started;
    RankRanges scheduled;
    RankRanges there;
    for (const auto& [rank, call] : calls) {
      same[key_of(*call)].push_back({rank, rank});
      there.push_back({rank, rank});
      if (call->state == CallState::Completed) continue;
      waiting.push_back({rank, rank});
      (call->state == CallState::Started ? started : scheduled).push_back({rank, rank});
    }
    for (RankRanges* ranks : {&waiting, &started, &scheduled, &there}) normalize(*ranks);
    if (same.size() > 1) {
      std::vector<RankRanges> parts;
      for (auto& [key, ranks] : same) {
        normalize(ranks);
        parts.push_back(ranks);
      }
      return Finding{FaultClass::Desync, &group, number, ranks_that_differ(parts)};
    }
    if (waiting.empty()) continue;
    RankRanges missing;
    for (const Member& member : group.members) {
      const bool is_behind = member.calls.empty() || member.calls.rbegin()->first < number;
      if (is_behind) missing.push_back({member.rank, member.rank});
    }
    normalize(missing);
    if (missing.empty() && !started.empty() && !scheduled.empty()) missing = scheduled;
    if (!missing.empty()) return Finding{FaultClass::MissingRank, &group, number, missing};
  }
  return std::nullopt;
}

// Ranks that wait in a call of any group.
RankRanges waiting_anywhere(const std::map<int, const FlightDump*>& dumps, const GroupCalls* but) {
  RankRanges ranks;
  for (const auto& [rank, dump] : dumps) {
    const bool waits =
        std::any_of(dump->calls.begin(), dump->calls.end(), [but](const FlightCall& call) {
          return call.state != CallState::Completed && call.group != but->name;
        });
    if (waits) ranks.push_back({rank, rank});
  }
  normalize(ranks);
  return ranks;
}

std::string last_call_text(const Member& member) {
  if (member.calls.empty()) return "has made no call in this group";
  const FlightCall& call = *member.calls.rbegin()->second;
  return "last made call " + std::to_string(call.number) + ", " + call_text(call) +
         (call.place.empty() ? "" : " at " + call.place);
}

Diagnosis diagnosis_from(const Finding& finding) {
  Diagnosis diagnosis{.fault = finding.fault, .ranks = finding.ranks, .adds_to_headline = true};
  // Ranks with the same call and place on one line.
  std::map<std::string, RankRanges> calls;
  std::map<std::string, RankRanges> absent;
  std::string op;
  for (const Member& member : finding.group->members) {
    const auto call = member.calls.find(finding.number);
    if (call == member.calls.end()) {
      absent[last_call_text(member)].push_back({member.rank, member.rank});
      continue;
    }
    op = call->second->op;
    calls[call_text(*call->second) +
          (call->second->place.empty() ? "" : " at " + call->second->place)]
        .push_back({member.rank, member.rank});
  }
  const std::string where =
      "call " + std::to_string(finding.number) + " of group " +
      (finding.group->description.empty() ? finding.group->name : finding.group->description);
  std::string text;
  std::size_t shown = 0;
  std::vector<std::string> own;  // of the ranks at fault
  std::vector<std::string> others;
  const auto add = [&](std::map<std::string, RankRanges>& list, const char* verb) {
    for (auto& [what, ranks] : list) {
      normalize(ranks);
      const std::string line = ranks_text(ranks) + verb + what;
      if (++shown <= 3) text += (text.empty() ? "" : ", ") + line;
      const bool is_own = !intersection(ranks, finding.ranks).empty();
      (is_own ? own : others).push_back(ranks_text(ranks) + ": " + what);
    }
  };
  add(calls, " called ");
  add(absent, " ");
  if (finding.fault == FaultClass::Desync) {
    diagnosis.summary = "desync in " + where + ": " + text;
    diagnosis.restart_helps = RestartHelps::No;
    diagnosis.advice = kSameCallsAdvice;
  } else {
    diagnosis.summary = ranks_text(finding.ranks) +
                        (count_of(finding.ranks) == 1 ? " has" : " have") + " not " +
                        (absent.empty() ? "started" : "made") + " " + where + ", " + op +
                        ", in which the others wait";
    diagnosis.advice = "look at the stack of that rank to see what it does instead";
  }
  own.insert(own.end(), others.begin(), others.end());
  for (const std::string& line : own)
    if (diagnosis.evidence.size() < kMostEvidenceLines)
      diagnosis.evidence.emplace_back(rendezvous::cut_text(line, kDiagnosisLineBytes));
  diagnosis.summary = rendezvous::cut_text(diagnosis.summary, kDiagnosisLineBytes);
  return diagnosis;
}

Result<FlightDump> read_dump(int rank, const Document& document) {
  const NodeId root = document.root();
  FlightDump dump{.rank = rank, .version = name_at(document, root, "version")};
  const auto entries = document.find(root, "entries");
  const auto* list = entries ? document.items(*entries) : nullptr;
  const bool is_known = dump.version.empty() ? list != nullptr : dump.version.starts_with("2.");
  if (!is_known)
    return Error{
        ErrorCode::Refused,
        "it is not a dump of the Flight Recorder of version 2: version \"" + dump.version + "\""};
  if (const auto groups = document.find(root, "pg_config");
      groups && document.dict(*groups) != nullptr) {
    for (const auto& [key, value] : document.dict(*groups)->items) {
      const auto name = document.text(key);
      if (!name || dump.groups.size() >= kMostGroups) continue;
      dump.groups[as_name(*name)] = {
          .description = name_at(document, value, "desc"),
          .ranks = ranks_in(text_in(document, value, "ranks").value_or(""))};
    }
  }
  if (list == nullptr) return dump;
  const std::size_t first =
      list->size() > kMostFlightEntries ? list->size() - kMostFlightEntries : 0;
  for (std::size_t i = first; i < list->size(); ++i)
    if (auto call = read_call(document, (*list)[i])) dump.calls.push_back(*std::move(call));
  // Gloo's groups have no configuration, only a name and a description in each entry.
  for (std::size_t i = first; i < list->size(); ++i) {
    const std::span<const NodeId> names = items_in(document, (*list)[i], "process_group");
    if (names.size() < 2 || dump.groups.size() >= kMostGroups) continue;
    const auto name = document.text(names[0]);
    const auto description = document.text(names[1]);
    if (!name || !description) continue;
    FlightGroup& known = dump.groups[as_name(*name)];
    if (known.description.empty()) known.description = as_name(*description);
  }
  return dump;
}

}  // namespace

Result<FlightDump> read_flight_dump(int rank, std::string_view pickled) {
  const Result<Document> document = pickle::decode(pickled);
  return document ? read_dump(rank, *document) : document.error();
}

Result<FlightDump> read_flight_json(int rank, std::string_view text) {
  const nlohmann::json json = parse_foreign_json(text);
  const Result<Document> document = pickle::from_json(json);
  return document ? read_dump(rank, *document) : document.error();
}

namespace {

constexpr std::string_view kFlightLine = "Flight Recorder: call ";
constexpr std::size_t kMostGroupsShown = 4;
constexpr std::size_t kMostDoneShown = 4;
constexpr std::size_t kMostWaitingShown = 4;

// Without what separates the parts of a line.
std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name) {
    const bool is_plain = static_cast<unsigned char>(c) > ' ' && c != ':' && c != ',';
    text += is_plain ? c : '_';
  }
  return text;
}

std::string line_of(const FlightDump& dump, const FlightCall& call) {
  const auto group = dump.groups.find(call.group);
  const std::string about = group == dump.groups.end() ? "" : group->second.description;
  const std::string place = call.place.substr(0, call.place.find_first_of(",\n"));
  return std::string(kFlightLine) + std::to_string(call.number) + " in " + plain(call.group) +
         (about.empty() ? "" : " (" + plain(about) + ")") + ": " + plain(call.op) + ", " +
         std::string(kStates.at(static_cast<std::size_t>(call.state))) +
         (call.sizes.empty()
              ? ""
              : ", of " + call.sizes + (call.types.empty() ? "" : " ") + call.types) +
         (place.empty() ? "" : ", at " + place);
}

}  // namespace

std::vector<std::string> flight_lines(const FlightDump& dump) {
  // By group, the one with the newest call first.
  std::vector<std::pair<std::string, std::vector<const FlightCall*>>> groups;
  for (auto call = dump.calls.rbegin(); call != dump.calls.rend(); ++call) {
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&call](const auto& each) { return each.first == call->group; });
    if (group == groups.end()) {
      if (groups.size() >= kMostGroupsShown) continue;
      group = groups.insert(groups.end(), {call->group, {}});
    }
    group->second.push_back(&*call);
  }
  std::vector<std::string> lines;
  for (auto& [name, calls] : groups) {
    std::reverse(calls.begin(), calls.end());
    std::size_t done = static_cast<std::size_t>(
        std::count_if(calls.begin(), calls.end(),
                      [](const FlightCall* call) { return call->state == CallState::Completed; }));
    std::size_t waiting = 0;
    for (const FlightCall* call : calls) {
      const bool is_done = call->state == CallState::Completed;
      const bool is_shown = is_done ? done-- <= kMostDoneShown
                                    : ++waiting <= kMostWaitingShown || call == calls.back();
      if (!is_shown) continue;
      std::string& line =
          lines.emplace_back(rendezvous::cut_text(line_of(dump, *call), kStackLineBytes));
      std::replace_if(
          line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; },
          '_');
    }
  }
  return lines;
}

bool is_flight_line(std::string_view line) { return line.starts_with(kFlightLine); }

FlightDump flight_dump_of(int rank, const std::vector<std::string>& lines) {
  FlightDump dump{.rank = rank};
  for (const std::string& line : lines) {
    if (!is_flight_line(line)) continue;
    std::string_view rest = std::string_view(line).substr(kFlightLine.size());
    const std::size_t in = rest.find(" in ");
    const std::size_t colon = rest.find(": ");
    if (in == rest.npos || colon == rest.npos || colon < in) continue;
    FlightCall call;
    const auto number = whole_number<std::int64_t>(rest.substr(0, in));
    if (!number) continue;
    call.number = *number;
    const std::string_view group = rest.substr(in + 4, colon - in - 4);
    const std::size_t about = group.find(" (");
    call.group = group.substr(0, about);
    FlightGroup& known = dump.groups[call.group];
    if (about != group.npos && group.ends_with(')'))
      known.description = group.substr(about + 2, group.size() - about - 3);
    rest.remove_prefix(colon + 2);
    const std::size_t place = rest.rfind(", at ");
    if (place != rest.npos) {
      call.place = rest.substr(place + 5);
      rest = rest.substr(0, place);
    }
    const std::size_t sizes = rest.find(", of ");
    if (sizes != rest.npos) {
      call.sizes = rest.substr(sizes + 5);
      rest = rest.substr(0, sizes);
    }
    const std::size_t comma = rest.find(", ");
    if (comma == rest.npos) continue;
    call.op = rest.substr(0, comma);
    call.state = state_named(rest.substr(comma + 2));
    dump.calls.push_back(std::move(call));
  }
  return dump;
}

Diagnosis diagnose_calls(const std::vector<FlightDump>& dumps) {
  std::map<int, const FlightDump*> by_rank;
  for (const FlightDump& dump : dumps) by_rank.emplace(dump.rank, &dump);
  const std::vector<GroupCalls> groups = groups_of(by_rank);
  std::optional<Finding> best;
  for (const GroupCalls& group : groups) {
    std::optional<Finding> found = first_difference(group);
    if (!found) continue;
    if (found->fault == FaultClass::MissingRank) {
      // A rank that waits in another group is late here because of that.
      const RankRanges idle = difference(found->ranks, waiting_anywhere(by_rank, &group));
      if (idle.empty() && best) continue;
      if (!idle.empty()) found->ranks = idle;
      const bool is_better = !best || (best->fault == FaultClass::MissingRank && !idle.empty());
      if (is_better) best = found;
    } else if (!best || best->fault != FaultClass::Desync) {
      best = found;
    }
  }
  return best ? diagnosis_from(*best) : Diagnosis();
}

}  // namespace drun::agent

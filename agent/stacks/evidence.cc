#include "agent/stacks/evidence.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "rendezvous/base/bytes.h"
#include "rendezvous/protocol/wire_fields.h"

namespace drun::agent {
namespace {

bool stand_together(const StackGroup& one, const StackGroup& other) {
  return one.doing == other.doing && one.arrived == other.arrived &&
         one.is_inside == other.is_inside && one.is_quiet == other.is_quiet &&
         one.nccl == other.nccl && one.source == other.source && one.lines == other.lines;
}

void sort_by_size(std::vector<StackGroup>& list) {
  struct Sized {
    std::size_t count = 0;
    int first = 0;
    StackGroup group{};
  };
  std::vector<Sized> sized;
  sized.reserve(list.size());
  for (StackGroup& group : list) {
    const int first = group.ranks.empty() ? 0 : group.ranks.front().first;
    sized.push_back({count_of(group.ranks), first, std::move(group)});
  }
  std::stable_sort(sized.begin(), sized.end(), [](const Sized& one, const Sized& other) {
    return one.count != other.count ? one.count > other.count : one.first < other.first;
  });
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = std::move(sized[i].group);
}

void cut(std::string& text) { text = rendezvous::cut_text(text, kStackLineBytes); }

void cut_lines(StackGroup& group) {
  if (group.lines.size() > kMostStackLines) {
    const std::size_t more = group.lines.size() - kMostStackLines + 1;
    group.lines.resize(kMostStackLines - 1);
    group.lines.push_back("... " + std::to_string(more) + " more lines");
  }
  for (std::string& line : group.lines) cut(line);
  cut(group.doing);
  cut(group.source);
  if (group.ranks.size() > kMostRankRanges) group.ranks.resize(kMostRankRanges);
}

std::size_t size_bytes(const StackGroup& group) {
  constexpr std::size_t kOverhead = 8;
  std::size_t bytes = 64 + group.doing.size() + group.source.size() + 16 * group.ranks.size();
  for (const std::string& line : group.lines) bytes += line.size() + kOverhead;
  return bytes;
}

std::string head_of(const StackGroup& group) {
  std::string text = ranks_text(group.ranks) + ":";
  if (!group.doing.empty()) text += " " + group.doing;
  if (group.is_quiet) text += group.doing.empty() ? " no sign of life" : ", no sign of life";
  return text + " (" + group.source + ")";
}

template <typename Archive>
void fields(Archive& archive, StackGroup& group) {
  rendezvous::rank_ranges(archive, group.ranks, kMostRankRanges);
  archive.text(group.doing, kStackLineBytes);
  archive.bits(group.arrived);
  archive.flag(group.is_inside);
  archive.flag(group.is_quiet);
  rendezvous::word(archive, group.nccl, NcclPosition::Behind);
  archive.text(group.source, kStackLineBytes);
  archive.list(group.lines, kMostStackLines,
               [](auto& each, std::string& line) { each.text(line, kStackLineBytes); });
}

template <typename Archive>
void fields(Archive& archive, Evidence& evidence) {
  archive.list(evidence.groups, kMostStackGroups,
               [](auto& each, StackGroup& group) { fields(each, group); });
  archive.list(evidence.notes, kMostEvidenceNotes,
               [](auto& each, std::string& note) { each.text(note, kStackLineBytes); });
  archive.integer(evidence.ranks_left_out, rendezvous::kCount);
}

}  // namespace

void add_note(std::vector<std::string>& notes, const std::string& text) {
  if (text.empty() || std::find(notes.begin(), notes.end(), text) != notes.end()) return;
  notes.push_back(text);
}

void merge(Evidence& into, const Evidence& found) {
  gather(into, found);
  settle(into);
}

void gather(Evidence& into, const Evidence& found) {
  for (const StackGroup& group : found.groups) {
    const auto same =
        std::find_if(into.groups.begin(), into.groups.end(),
                     [&group](const StackGroup& each) { return stand_together(each, group); });
    if (same == into.groups.end())
      into.groups.push_back(group);
    else
      same->ranks.insert(same->ranks.end(), group.ranks.begin(), group.ranks.end());
  }
  for (const std::string& text : found.notes) add_note(into.notes, text);
  into.ranks_left_out += found.ranks_left_out;
}

void settle(Evidence& evidence) {
  for (StackGroup& group : evidence.groups) normalize(group.ranks);
  sort_by_size(evidence.groups);
}

void shrink(Evidence& evidence) {
  for (StackGroup& group : evidence.groups) {
    const std::size_t before = count_of(group.ranks);
    cut_lines(group);
    evidence.ranks_left_out += before - count_of(group.ranks);
  }
  sort_by_size(evidence.groups);  // by what is left, so that shrinking again changes nothing
  // Keeps the largest group, then the smallest ones, which differ most.
  std::vector<StackGroup>& groups = evidence.groups;
  std::size_t bytes = groups.empty() ? 0 : size_bytes(groups.front());
  std::size_t first = groups.size();
  while (first > 1 && groups.size() - first + 1 < kMostStackGroups &&
         bytes + size_bytes(groups[first - 1]) <= kEvidenceBytes)
    bytes += size_bytes(groups[--first]);
  for (std::size_t i = 1; i < first; ++i) evidence.ranks_left_out += count_of(groups[i].ranks);
  if (first > 1)
    groups.erase(groups.begin() + 1, groups.begin() + static_cast<std::ptrdiff_t>(first));
  if (evidence.notes.size() > kMostEvidenceNotes) {
    const std::size_t more = evidence.notes.size() - kMostEvidenceNotes + 1;
    evidence.notes.resize(kMostEvidenceNotes - 1);
    evidence.notes.push_back("and " + std::to_string(more) + " more notes");
  }
  for (std::string& text : evidence.notes) cut(text);
}

std::string encode_evidence(Evidence evidence) {
  shrink(evidence);
  std::string bytes;
  rendezvous::WireWriter writer(bytes);
  fields(writer, evidence);
  return bytes;
}

std::optional<Evidence> decode_evidence(std::string_view bytes) {
  Evidence evidence;
  rendezvous::WireReader reader(bytes);
  fields(reader, evidence);
  if (!reader.is_complete()) return std::nullopt;
  Evidence bounded = evidence;
  shrink(bounded);
  if (bounded != evidence) return std::nullopt;  // beyond the limits in total, or out of order
  return evidence;
}

std::vector<std::string> evidence_lines(const Evidence& evidence, std::size_t most_lines) {
  std::vector<std::string> lines;
  for (const StackGroup& group : evidence.groups) {
    lines.push_back(head_of(group));
    for (const std::string& line : group.lines) lines.push_back("  " + line);
  }
  if (evidence.ranks_left_out > 0)
    lines.push_back("and " + std::to_string(evidence.ranks_left_out) + " more ranks");
  for (const std::string& text : evidence.notes) lines.push_back("note: " + text);
  if (lines.size() <= most_lines || most_lines == 0) return lines;
  const std::size_t more = lines.size() - most_lines + 1;
  lines.resize(most_lines - 1);
  lines.push_back("... " + std::to_string(more) + " more lines");
  return lines;
}

std::string evidence_json(const Evidence& evidence, const std::string& run_id) {
  using Json = nlohmann::ordered_json;
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  const Json kStands[] = {nullptr, "ahead", "behind"};  // in the order of NcclPosition
  Json groups = Json::array();
  for (const StackGroup& group : evidence.groups) {
    Json ranks = Json::array();
    for (const RankRange& range : group.ranks) ranks.push_back({range.first, range.last});
    groups.push_back({{"ranks", ranks},
                      {"doing", or_null(group.doing)},
                      {"operations_begun", group.arrived == 0 ? Json() : Json(group.arrived)},
                      {"is_quiet", group.is_quiet},
                      {"nccl", kStands[static_cast<std::size_t>(group.nccl)]},
                      {"source", group.source},
                      {"stacks", group.lines}});
  }
  const Json json{{"schema", "drun.stacks/1"},
                  {"run_id", run_id},
                  {"groups", groups},
                  {"ranks_left_out", evidence.ranks_left_out},
                  {"notes", evidence.notes}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace drun::agent

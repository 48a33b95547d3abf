#include "agent/stacks/evidence_json.h"

#include <nlohmann/json.hpp>

#include "rendezvous/base/foreign_json.h"

namespace drun::agent {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "drun.stacks/1";

constexpr int kMostRank = 1 << 30;  // so that ranks can be counted

// In the order of NcclPosition.
const Json kStands[] = {nullptr, "ahead", "behind"};

Json to_json(const StackGroup& group) {
  Json ranks = Json::array();
  for (const RankRange& range : group.ranks) ranks.push_back({range.first, range.last});
  return {{"ranks", ranks},
          {"doing", group.doing.empty() ? Json(nullptr) : Json(group.doing)},
          {"operations_begun", group.arrived == 0 ? Json(nullptr) : Json(group.arrived)},
          {"is_quiet", group.is_quiet},
          {"nccl", kStands[static_cast<std::size_t>(group.nccl)]},
          {"source", group.source},
          {"stacks", group.lines}};
}

StackGroup to_group(const Json& json) {
  StackGroup group;
  for (const Json& range : json.at("ranks")) {
    const RankRange ranks{int_of(range.at(0)), int_of(range.at(1))};
    if (ranks.first >= 0 && ranks.last >= ranks.first && ranks.last <= kMostRank)
      group.ranks.push_back(ranks);
  }
  if (json.at("doing").is_string()) group.doing = json.at("doing").get<std::string>();
  if (json.at("operations_begun").is_number_unsigned())
    group.arrived = json.at("operations_begun").get<std::uint64_t>();
  group.is_quiet = json.at("is_quiet").get<bool>();
  if (const auto stand = json.find("nccl"); stand != json.end()) {
    if (*stand == kStands[1]) group.nccl = NcclPosition::Ahead;
    if (*stand == kStands[2]) group.nccl = NcclPosition::Behind;
  }
  group.source = json.at("source").get<std::string>();
  group.lines = json.at("stacks").get<std::vector<std::string>>();
  return group;
}

}  // namespace

std::string evidence_json(const Evidence& evidence, const std::string& run_id) {
  Json groups = Json::array();
  for (const StackGroup& group : evidence.groups) groups.push_back(to_json(group));
  const Json json{{"schema", kSchema},
                  {"run_id", run_id},
                  {"groups", groups},
                  {"ranks_left_out", evidence.ranks_left_out},
                  {"notes", evidence.notes}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Evidence> parse_evidence_json(std::string_view text) {
  const Json json = parse_foreign_json<Json>(text);
  try {
    if (json.at("schema") == kSchema) {
      Evidence evidence;
      for (const Json& group : json.at("groups")) evidence.groups.push_back(to_group(group));
      evidence.notes = json.at("notes").get<std::vector<std::string>>();
      evidence.ranks_left_out = count_in(json.at("ranks_left_out"));
      return evidence;
    }
  } catch (const Json::exception&) {
    // As another schema.
  }
  return Error{ErrorCode::Refused, "what answered is not an agent of this version of drun"};
}

}  // namespace drun::agent

#include "rendezvous/leader/etcd_record.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace drun::rendezvous::etcd {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr std::size_t kMostTextBytes = 512;
// Leaves room for further rounds.
constexpr int kMostCounted = 1 << 29;

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string cut(const std::string& text) { return text.substr(0, kMostTextBytes); }

Json json_of(const AgentId& id) { return {{"agent", cut(id.first)}, {"slot", id.second}}; }

Json json_of(const Exclusions::Entry& entry) {
  Json json = json_of(entry.id);
  json["node_rank"] = entry.told.node_rank;
  json["host"] = cut(entry.told.host);
  json["round"] = entry.told.round;
  json["reason"] = cut(entry.told.reason);
  return json;
}

// Fields of an object that other programs may have written; keeps the first error.
class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) { is_good_ = json.is_object(); }

  bool has(const char* name) const { return json_.is_object() && json_.contains(name); }
  const Json& at(const char* name) const {
    static const Json kNull;
    return has(name) ? json_[name] : kNull;
  }
  int count(const char* name, int most = kMostCounted) {
    const Json& value = at(name);
    const bool is_fit = value.is_number_unsigned() &&
                        value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
    is_good_ = is_good_ && is_fit;
    return is_fit ? value.get<int>() : 0;
  }
  std::uint64_t whole(const char* name) {
    const Json& value = at(name);
    is_good_ = is_good_ && value.is_number_unsigned();
    return value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
  }
  std::string text(const char* name) {
    const Json& value = at(name);
    const bool is_fit =
        value.is_string() && value.get_ref<const std::string&>().size() <= 4 * kMostTextBytes;
    is_good_ = is_good_ && is_fit;
    return is_fit ? value.get<std::string>() : std::string();
  }
  bool is_good() const { return is_good_; }

 private:
  const Json& json_;
  bool is_good_ = false;
};

AgentId agent_of(Fields& fields) {
  std::string agent = fields.text("agent");
  return {std::move(agent), fields.count("slot")};
}

bool read(const Json& json, Exclusions& exclusions) {
  if (!json.is_array() || json.size() > kMostKept) return false;
  for (const Json& each : json) {
    Fields fields(each);
    AgentId id = agent_of(fields);
    LeftOut told;
    told.node_rank = fields.count("node_rank");
    told.host = fields.text("host");
    told.round = fields.count("round");
    told.reason = fields.text("reason");
    if (!fields.is_good()) return false;
    exclusions.nodes.push_back({std::move(id), std::move(told)});
  }
  return true;
}

}  // namespace

std::string text_of(const LeaderRecord& record) {
  return dumped({{"drun", kVersion},
                 {"host", record.endpoint.host},
                 {"port", record.endpoint.port},
                 {"term", record.term},
                 {"instance", record.instance}});
}

std::string text_of(const StateRecord& record) {
  const Exclusions& exclusions = record.rounds.exclusions;
  Json left_out = Json::array();
  const std::size_t first = exclusions.nodes.size() - std::min(exclusions.nodes.size(), kMostKept);
  for (std::size_t i = first; i < exclusions.nodes.size(); ++i)
    left_out.push_back(json_of(exclusions.nodes[i]));
  Json json = {{"drun", kVersion},
               {"term", record.term},
               {"rounds", record.rounds.rounds},
               {"restarts", record.rounds.restarts},
               {"left_out", std::move(left_out)}};
  if (exclusions.last_at_fault) {
    json["at_fault"] = json_of(*exclusions.last_at_fault);
    json["failures_in_a_row"] = exclusions.failures_in_a_row;
  }
  return dumped(json);
}

std::optional<LeaderRecord> leader_of(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  Fields fields(json);
  LeaderRecord record;
  const int version = fields.count("drun");
  record.endpoint.host = fields.text("host");
  record.endpoint.port = static_cast<std::uint16_t>(fields.count("port", 65535));
  record.term = fields.whole("term");
  record.instance = fields.whole("instance");
  const bool is_good = fields.is_good() && version == kVersion && !record.endpoint.host.empty() &&
                       record.endpoint.port != 0;
  return is_good ? std::optional(std::move(record)) : std::nullopt;
}

std::optional<StateRecord> state_of(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  Fields fields(json);
  StateRecord record;
  const int version = fields.count("drun");
  record.term = fields.whole("term");
  record.rounds.rounds = fields.count("rounds");
  record.rounds.restarts = fields.count("restarts");
  Exclusions& exclusions = record.rounds.exclusions;
  const bool has_read = read(fields.at("left_out"), exclusions);
  if (fields.has("at_fault")) {
    Fields at_fault(fields.at("at_fault"));
    exclusions.last_at_fault = agent_of(at_fault);
    exclusions.failures_in_a_row = fields.count("failures_in_a_row");
    if (!at_fault.is_good()) return std::nullopt;
  }
  const bool is_good = fields.is_good() && has_read && version == kVersion;
  return is_good ? std::optional(std::move(record)) : std::nullopt;
}

}  // namespace drun::rendezvous::etcd

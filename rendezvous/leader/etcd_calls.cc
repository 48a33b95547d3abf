#include "rendezvous/leader/etcd_calls.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <utility>

#include "rendezvous/base/text.h"

namespace drun::rendezvous::etcd {
namespace {

using GatewayJson = nlohmann::json;

// gRPC's codes.
constexpr int kNotFound = 5;
constexpr int kUnauthenticated = 16;
constexpr std::size_t kMostShownBytes = 200;

std::string number(std::int64_t value) { return std::to_string(value); }

GatewayJson range(const std::string& key) { return {{"request_range", {{"key", base64(key)}}}}; }

GatewayJson put(const std::string& key, const std::string& value, Lease lease) {
  return {
      {"request_put", {{"key", base64(key)}, {"value", base64(value)}, {"lease", number(lease)}}}};
}

GatewayJson take_away(const std::string& key) {
  return {{"request_delete_range", {{"key", base64(key)}}}};
}

GatewayJson is_created(const std::string& key, Revision revision) {
  return {{"key", base64(key)},
          {"target", "CREATE"},
          {"result", "EQUAL"},
          {"create_revision", number(revision)}};
}

GatewayJson is_changed(const std::string& key, Revision revision) {
  return {{"key", base64(key)},
          {"target", "MOD"},
          {"result", "EQUAL"},
          {"mod_revision", number(revision)}};
}

// The answer contains both keys, whether the transaction succeeds or fails.
Request transaction(const Keys& keys, GatewayJson compare, GatewayJson actions) {
  for (const std::string& key : {keys.leader, keys.state}) actions.push_back(range(key));
  const GatewayJson body = {{"compare", std::move(compare)},
                            {"success", std::move(actions)},
                            {"failure", {range(keys.leader), range(keys.state)}}};
  return {"/v3/kv/txn", body.dump()};
}

Request request_for(const Look&, const Keys& keys) {
  return transaction(keys, GatewayJson::array(), GatewayJson::array());
}
Request request_for(const Grant& grant, const Keys&) {
  return {"/v3/lease/grant", GatewayJson{{"TTL", number(grant.ttl.count())}}.dump()};
}
Request request_for(const Renew& renew, const Keys&) {
  return {"/v3/lease/keepalive", GatewayJson{{"ID", number(renew.lease)}}.dump()};
}
Request request_for(const Claim& claim, const Keys& keys) {
  return transaction(keys,
                     {is_created(keys.leader, 0), is_changed(keys.state, claim.state_changed)},
                     {put(keys.leader, claim.leader, claim.leader_lease),
                      put(keys.state, claim.state, claim.state_lease)});
}
Request request_for(const Store& store, const Keys& keys) {
  return transaction(
      keys, {is_created(keys.leader, store.led_since), is_changed(keys.state, store.state_changed)},
      GatewayJson::array({put(keys.state, store.state, store.state_lease)}));
}
Request request_for(const Clear& clear, const Keys& keys) {
  return transaction(keys, GatewayJson::array({is_created(keys.leader, clear.led_since)}),
                     {take_away(keys.leader), take_away(keys.state)});
}
Request request_for(const Revoke& revoke, const Keys&) {
  return {"/v3/lease/revoke", GatewayJson{{"ID", number(revoke.lease)}}.dump()};
}

// The member of `json` with that name; null if there is none.
template <typename Any>
const Any& part(const Any& json, const char* name) {
  static const Any kNull;
  if (!json.is_object()) return kNull;
  const auto found = json.find(name);
  return found == json.end() ? kNull : *found;
}

// Reads a number, or text (etcd's form of 64-bit numbers). Absent: 0.
std::int64_t whole(const GatewayJson& json) {
  if (json.is_number_unsigned()) {
    const auto value = json.get<std::uint64_t>();
    return value > std::uint64_t{std::numeric_limits<std::int64_t>::max()}
               ? 0
               : static_cast<std::int64_t>(value);
  }
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (!json.is_string()) return 0;
  return whole_number<std::int64_t>(json.get_ref<const std::string&>()).value_or(0);
}

std::string text_of(const GatewayJson& json) {
  return json.is_string() ? json.get<std::string>() : std::string();
}

Failed not_etcd(const std::string& what) { return {"does not answer as etcd 3.4 does: " + what}; }

// Makes the text printable on a terminal.
std::string shown(std::string text) {
  if (text.size() > kMostShownBytes) text.resize(kMostShownBytes);
  for (char& c : text) c = c < ' ' || c > '~' ? '?' : c;
  return text;
}

Failed error_of(const GatewayJson& json, int status) {
  const GatewayJson& inner = part(json, "error").is_object() ? part(json, "error") : json;
  std::string words = text_of(part(inner, "message"));
  if (words.empty()) words = text_of(part(inner, "error"));
  if (words.empty()) return not_etcd("HTTP status " + std::to_string(status));
  const GatewayJson& named =
      part(inner, "grpc_code").is_null() ? part(inner, "code") : part(inner, "grpc_code");
  const auto code = whole(named);
  if (code == kUnauthenticated || words.find("user name is empty") != words.npos)
    return {"etcd wants a user's name and password, which drun does not have: " + shown(words) +
            "; use client certificates, or a separate etcd"};
  return {shown(words), code == kNotFound};
}

void look_at(const GatewayJson& found, const Keys& keys, Sight& sight) {
  const auto key = bytes_of_base64(text_of(part(found, "key")));
  auto value = bytes_of_base64(text_of(part(found, "value")));
  if (!key || !value) return;
  Found seen{.value = *std::move(value),
             .created = whole(part(found, "create_revision")),
             .changed = whole(part(found, "mod_revision")),
             .lease = whole(part(found, "lease"))};
  if (*key == keys.leader)
    sight.leader = std::move(seen);
  else if (*key == keys.state)
    sight.state = std::move(seen);
}

std::variant<Answer, Failed> seen_in(const GatewayJson& json, const Keys& keys) {
  Seen seen;
  seen.sight.revision = whole(part(part(json, "header"), "revision"));
  if (seen.sight.revision <= 0) return not_etcd("no revision in it");
  const GatewayJson& done = part(json, "succeeded");  // absent if false
  seen.is_done = done.is_boolean() && done.get<bool>();
  std::size_t ranges = 0;
  const GatewayJson& responses = part(json, "responses");
  if (!responses.is_array()) return not_etcd("no responses in it");
  for (const GatewayJson& response : responses) {
    const GatewayJson& range = part(response, "response_range");
    if (range.is_null()) continue;
    ++ranges;
    const GatewayJson& found = part(range, "kvs");
    if (!found.is_array()) continue;
    for (const GatewayJson& each : found) look_at(each, keys, seen.sight);
  }
  if (ranges != 2) return not_etcd("not both keys in it");
  return Answer(std::move(seen));
}

std::variant<Answer, Failed> leased_in(const GatewayJson& json) {
  const Leased leased{.lease = whole(part(json, "ID")),
                      .ttl = std::chrono::seconds(whole(part(json, "TTL")))};
  constexpr std::chrono::seconds kMost = std::chrono::hours(24 * 365 * 100);
  if (leased.lease == 0 || leased.ttl > kMost) return not_etcd("no lease in it");
  return Answer(leased.ttl.count() < 0 ? Leased{leased.lease} : leased);
}

}  // namespace

Request request_of(const Call& call, const Keys& keys) {
  return std::visit([&keys](const auto& asked) { return request_for(asked, keys); }, call);
}

Request watch_request(Revision from, const Keys& keys) {
  const GatewayJson body = {
      {"create_request", {{"key", base64(keys.leader)}, {"start_revision", number(from)}}}};
  return {"/v3/watch", body.dump()};
}

std::variant<WatchMessage, Failed> watch_message(const Keys& keys, std::string_view line) {
  const GatewayJson json = GatewayJson::parse(line, nullptr, false);
  if (json.is_discarded() || !json.is_object()) return not_etcd("no JSON from a watch");
  if (json.contains("error")) return error_of(json, 200);
  const GatewayJson& result = part(json, "result");
  if (!result.is_object()) return not_etcd("no result from a watch");
  const GatewayJson& canceled = part(result, "canceled");
  if (canceled.is_boolean() && canceled.get<bool>()) {
    const std::string why = text_of(part(result, "cancel_reason"));
    return Failed{"etcd ended the watch" + (why.empty() ? "" : ": " + shown(why))};
  }
  WatchMessage message{.revision = whole(part(part(result, "header"), "revision"))};
  const GatewayJson& events = part(result, "events");
  if (!events.is_array()) return message;
  for (const GatewayJson& event : events) {  // in order of time: the last one counts
    const GatewayJson& kv = part(event, "kv");
    Sight sight;
    look_at(kv, keys, sight);
    const bool is_deleted = text_of(part(event, "type")) == "DELETE";
    const Revision changed = whole(part(kv, "mod_revision"));
    if (changed <= 0 || (!is_deleted && !sight.leader)) continue;
    message.is_change = true;
    message.revision = changed;
    message.leader = is_deleted ? std::nullopt : std::move(sight.leader);
  }
  return message;
}

std::variant<Answer, Failed> answer_of(const Call& call, const Keys& keys, int status,
                                       std::string_view body) {
  const GatewayJson json = GatewayJson::parse(body, nullptr, false);
  if (json.is_discarded() || !json.is_object())
    return not_etcd("HTTP status " + std::to_string(status) + ", and no JSON");
  if (status != 200 || json.contains("error")) return error_of(json, status);
  if (std::holds_alternative<Grant>(call)) return leased_in(json);
  if (std::holds_alternative<Renew>(call)) return leased_in(part(json, "result"));
  if (std::holds_alternative<Revoke>(call)) return Answer(Revoked());
  return seen_in(json, keys);
}

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

  int count(const char* name, int most = kMostCounted) {
    const Json& value = part(json_, name);
    const bool is_fit = value.is_number_unsigned() &&
                        value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
    is_good_ = is_good_ && is_fit;
    return is_fit ? value.get<int>() : 0;
  }
  std::uint64_t whole(const char* name) {
    const Json& value = part(json_, name);
    is_good_ = is_good_ && value.is_number_unsigned();
    return value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
  }
  std::string text(const char* name) {
    const Json& value = part(json_, name);
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
  const bool has_read = read(part(json, "left_out"), exclusions);
  if (const Json& last = part(json, "at_fault"); !last.is_null()) {
    Fields at_fault(last);
    exclusions.last_at_fault = agent_of(at_fault);
    exclusions.failures_in_a_row = fields.count("failures_in_a_row");
    if (!at_fault.is_good()) return std::nullopt;
  }
  const bool is_good = fields.is_good() && has_read && version == kVersion;
  return is_good ? std::optional(std::move(record)) : std::nullopt;
}

}  // namespace drun::rendezvous::etcd

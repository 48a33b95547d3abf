#include "worker_lib/tools/probe/facts_json.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "rendezvous/base/foreign_json.h"

namespace drun::probe {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostReportBytes = std::size_t{64} << 10;
constexpr std::size_t kMostFindingsBytes = std::size_t{1} << 20;

// One layout for both directions: `fields(archive, value)` names every field once.
class Writer {
 public:
  template <typename T>
  void operator()(const char* name, const T& value) {
    json_[name] = value;
  }
  template <typename T>
  void operator()(const char* name, const std::optional<T>& value) {
    json_[name] = value ? Json(*value) : Json(nullptr);
  }
  template <typename T>
  void list(const char* name, std::vector<T>& values) {
    Json array = Json::array();
    for (T& each : values) {
      Writer writer;
      fields(writer, each);
      array.push_back(writer.take());
    }
    json_[name] = std::move(array);
  }
  template <typename T>
  void object(const char* name, T& value) {
    Writer writer;
    fields(writer, value);
    json_[name] = writer.take();
  }
  Json take() { return std::move(json_); }

 private:
  Json json_ = Json::object();
};

template <typename T>
T value_of(const Json& json) {
  if constexpr (std::is_same_v<T, int>) return int_of(json);
  if constexpr (std::is_same_v<T, std::uint64_t>)
    return json.get_ref<const Json::number_unsigned_t&>();
  if constexpr (std::is_same_v<T, std::vector<int>>) {
    std::vector<int> values;
    for (const Json& each : json) values.push_back(int_of(each));
    return values;
  }
  if constexpr (!std::is_integral_v<T> || std::is_same_v<T, bool>) return json.get<T>();
}

// Throws what nlohmann's library throws; parse() stops that.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}
  template <typename T>
  void operator()(const char* name, T& value) {
    value = value_of<T>(json_.at(name));
  }
  template <typename T>
  void operator()(const char* name, std::optional<T>& value) {
    const Json& found = json_.at(name);
    value = found.is_null() ? std::nullopt : std::optional<T>(value_of<T>(found));
  }
  template <typename T>
  void list(const char* name, std::vector<T>& values) {
    for (const Json& each : json_.at(name)) {
      Reader reader(each);
      fields(reader, values.emplace_back());
    }
  }
  template <typename T>
  void object(const char* name, T& value) {
    Reader reader(json_.at(name));
    fields(reader, value);
  }

 private:
  const Json& json_;
};

template <typename Archive>
void fields(Archive& archive, NodeFacts& facts) {
  archive("node", facts.node);
  archive("host", facts.host);
  archive("drun_version", facts.version);
  archive("kernel", facts.kernel);
  archive("address", facts.address);
  archive("interface", facts.network);
  archive("mtu", facts.mtu);
  archive("port", facts.port);
  archive("cores", facts.cores);
  archive("memory_bytes", facts.memory_bytes);
  archive("shm_bytes", facts.shm_bytes);
  archive("shm_free_bytes", facts.shm_free_bytes);
  archive("nofile", facts.nofile);
  archive("nproc", facts.nproc);
  archive("memlock_bytes", facts.memlock_bytes);
  archive("gpus", facts.gpus);
  archive("driver_version", facts.driver);
  archive("nccl_version", facts.nccl);
  archive("has_infiniband", facts.has_infiniband);
  archive("problem", facts.problem);
}
template <typename Archive>
void fields(Archive& archive, Visit& visit) {
  archive("to", visit.to);
  archive("has_arrived", visit.has_arrived);
  archive("large_messages_too", visit.large_ones_too);
  archive("reason", visit.reason);
  archive("round_trip_s", visit.round_trip_s);
  archive("clock_ahead_s", visit.clock_ahead_s);
  archive("clock_bound_s", visit.clock_bound_s);
}
template <typename Archive>
void fields(Archive& archive, NameLookup& lookup) {
  archive("of", lookup.of);
  archive("is_done", lookup.is_done);
  archive("addresses", lookup.addresses);
  archive("name_back", lookup.name_back);
}
template <typename Archive>
void fields(Archive& archive, PairRate& pair) {
  archive("with", pair.with);
  archive("gbytes_per_s", pair.gbytes_per_s);
  archive("problem", pair.problem);
}
template <typename Archive>
void fields(Archive& archive, NodeReport& report) {
  archive.object("facts", report.facts);
  archive.list("visits", report.visits);
  archive.list("names", report.names);
  archive.list("pairs", report.pairs);
}
template <typename Archive>
void fields(Archive& archive, Finding& finding) {
  archive("is_problem", finding.is_problem);
  archive("nodes", finding.nodes);
  archive("what", finding.what);
  archive("remedy", finding.remedy);
}

template <typename T>
Json json_of(T value) {
  Writer writer;
  fields(writer, value);
  return writer.take();
}

std::string dumped(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

template <typename Read>
auto parse(std::string_view text, std::size_t most, const char* what, Read read)
    -> Result<decltype(read(Json()))> {
  if (text.size() > most) return Error{ErrorCode::Refused, std::string(what) + " is too long"};
  try {
    return read(parse_foreign_json<Json>(text));
  } catch (const Json::exception& error) {
    return Error{ErrorCode::Refused, std::string(what) + " makes no sense: " + error.what()};
  }
}

}  // namespace

std::string to_json(const NodeReport& report) { return dumped(json_of(report)); }

Result<NodeReport> parse_report(std::string_view text) {
  return parse(text, kMostReportBytes, "a node's report", [](const Json& json) {
    NodeReport report;
    Reader reader(json);
    fields(reader, report);
    return report;
  });
}

std::string to_json(const std::vector<Finding>& findings) {
  Json array = Json::array();
  for (const Finding& finding : findings) array.push_back(json_of(finding));
  return dumped(array);
}

Result<std::vector<Finding>> parse_findings(std::string_view text) {
  return parse(text, kMostFindingsBytes, "the list of findings", [](const Json& json) {
    std::vector<Finding> findings;
    for (const Json& each : json) {
      Reader reader(each);
      fields(reader, findings.emplace_back());
    }
    return findings;
  });
}

std::string whole_json(const std::vector<std::optional<NodeReport>>& reports,
                       const std::vector<Finding>& findings) {
  Json nodes = Json::array();
  for (const auto& report : reports) nodes.push_back(report ? json_of(*report) : Json(nullptr));
  Json list = Json::array();
  for (const Finding& finding : findings) list.push_back(json_of(finding));
  const Json whole{{"schema", "drun.doctor/1"},
                   {"is_well", !has_problem(findings)},
                   {"nodes", std::move(nodes)},
                   {"findings", std::move(list)}};
  return dumped(whole, 2) + "\n";
}

}  // namespace drun::probe

#include "worker_lib/tools/probe/formats.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "rendezvous/base/foreign_json.h"

namespace drun::probe {

// --- JSON

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

std::string whole_json(const Reports& reports, const std::vector<Finding>& findings) {
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

// --- Text

namespace {

constexpr std::size_t kMostRows = 64;
constexpr std::size_t kMostFindings = 100;

using Row = std::vector<std::string>;

// Nothing for what is empty or the same in all rows; what the machines sent is one line of text.
std::string printable(std::string text) {
  for (char& c : text) c = static_cast<unsigned char>(c) < ' ' || c == 0x7f ? '?' : c;
  return text;
}

std::string aligned(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - row[i].size() + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

const Visit* visit_to(const NodeReport& report, int node) {
  for (const Visit& visit : report.visits) {
    if (visit.to == node) return &visit;
  }
  return nullptr;
}

std::string clock_of(const NodeReport& report) {
  if (report.facts.node == 0) return "-";
  const Visit* const visit = visit_to(report, 0);
  if (visit == nullptr || !visit->has_arrived) return "?";
  return clock_text(visit->clock_ahead_s, visit->clock_bound_s);
}

// To the neighbor that comes next: the last one's is node 0.
std::string next_of(const NodeReport& report, std::size_t count) {
  const int next = (report.facts.node + 1) % static_cast<int>(count);
  for (const PairRate& pair : report.pairs) {
    if (pair.with != next) continue;
    return pair.problem.empty() ? rate_text(pair.gbytes_per_s) : "failed";
  }
  return "-";
}

std::string way_of(const NodeReport& report, std::size_t count) {
  const Visit* const visit = visit_to(report, (report.facts.node + 1) % static_cast<int>(count));
  if (visit == nullptr) return "-";
  return visit->has_arrived ? time_text(visit->round_trip_s) : "no way";
}

Row row_of(const NodeReport& report, std::size_t count) {
  const NodeFacts& facts = report.facts;
  return {std::to_string(facts.node),
          facts.host,
          facts.address,
          facts.network + (facts.mtu > 0 ? " " + std::to_string(facts.mtu) : ""),
          std::to_string(facts.cores),
          bytes_text(facts.memory_bytes),
          std::to_string(facts.gpus),
          bytes_text(facts.shm_free_bytes),
          limit_text(facts.nofile),
          clock_of(report),
          way_of(report, count),
          next_of(report, count)};
}

// The values that are the same on all nodes that reported; others are findings.
std::string common_text(const Reports& reports) {
  struct Item {
    const char* name;
    std::function<std::string(const NodeFacts&)> text;
  };
  const Item items[] = {
      {"drun", [](const auto& facts) { return facts.version; }},
      {"Linux", [](const auto& facts) { return facts.kernel; }},
      {"GPU driver", [](const auto& facts) { return facts.driver; }},
      {"NCCL", [](const auto& facts) { return facts.nccl; }},
      {"nproc", [](const auto& facts) { return limit_text(facts.nproc); }},
      {"memlock", [](const auto& facts) { return bytes_limit_text(facts.memlock_bytes); }},
  };
  std::string text;
  for (const Item& item : items) {
    std::string value;
    bool is_same = true;
    for (const auto& report : reports) {
      if (!report) continue;
      const std::string own = item.text(report->facts);
      if (value.empty()) value = own;
      is_same = is_same && own == value;
    }
    text += (text.empty() ? "" : ", ") + std::string(item.name) + " " +
            (is_same ? or_none(value) : "differs");
  }
  return text;
}

std::string counted(std::size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string verdict(const std::vector<Finding>& findings) {
  const auto problems = static_cast<std::size_t>(std::count_if(
      findings.begin(), findings.end(), [](const auto& finding) { return finding.is_problem; }));
  const std::size_t warnings = findings.size() - problems;
  if (problems == 0 && warnings == 0) return "all is well\n";
  std::string text = problems == 0 ? "no problems" : counted(problems, "problem");
  if (warnings > 0) text += ", " + counted(warnings, "warning");
  return text + "\n";
}

}  // namespace

std::string findings_text(const std::vector<Finding>& findings) {
  std::string text;
  for (std::size_t i = 0; i < std::min(findings.size(), kMostFindings); ++i) {
    const Finding& finding = findings[i];
    text += (finding.is_problem ? "problem  " : "warning  ") + printable(finding.what) +
            (finding.remedy.empty() ? "" : "; " + printable(finding.remedy)) + "\n";
  }
  if (findings.size() > kMostFindings)
    text += "         and " + std::to_string(findings.size() - kMostFindings) + " more\n";
  return text;
}

std::string table_text(const Reports& reports, const std::vector<Finding>& findings) {
  std::vector<Row> rows{{"node", "host", "address", "interface", "cores", "memory", "GPUs",
                         "shm free", "nofile", "clock", "to next", "all_reduce"}};
  std::size_t left_out = 0;
  for (std::size_t node = 0; node < reports.size(); ++node) {
    if (rows.size() > kMostRows && findings_about(static_cast<int>(node), findings).empty()) {
      ++left_out;
      continue;
    }
    if (reports[node]) {
      rows.push_back(row_of(*reports[node], reports.size()));
      for (std::string& cell : rows.back()) cell = printable(cell);
    } else {
      rows.push_back({std::to_string(node), "?"});
    }
  }
  std::string text = counted(reports.size(), "node") + ": " + printable(common_text(reports)) +
                     "\n\n" + aligned(rows);
  if (left_out > 0) text += "and " + counted(left_out, "node") + " like these\n";
  text += "\n" + findings_text(findings);
  return text + verdict(findings);
}

}  // namespace drun::probe

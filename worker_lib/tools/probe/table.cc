#include "worker_lib/tools/probe/table.h"

#include <algorithm>
#include <functional>

#include "worker_lib/tools/probe/findings.h"

namespace drun::probe {
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
      {"memlock",
       [](const auto& facts) {
         return facts.memlock_bytes ? bytes_text(*facts.memlock_bytes) : "unlimited";
       }},
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

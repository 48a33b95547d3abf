// Any probe report from other nodes in the store is either rejected, or judged and shown without
// harm. It means the same when it is written again.
//
// Input: reports of up to 8 nodes, each with a zero byte at its end. The first one is also parsed
// as findings.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "worker_lib/tools/probe/findings.h"
#include "worker_lib/tools/probe/formats.h"

namespace {

using namespace drun::probe;

constexpr std::size_t kMostNodes = 8;

void require(bool is_true) {
  if (!is_true) std::abort();
}

// Control characters would affect the terminal.
bool is_printable(std::string_view text) {
  for (const char c : text)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f) return false;
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const auto told = parse_findings(rest.substr(0, rest.find('\0')));
  if (told) {
    const auto again = parse_findings(to_json(*told));
    require(again && *again == *told);
    require(is_printable(findings_text(*told)));
    static_cast<void>(findings_about(0, *told));
    for (const Finding& finding : *told) static_cast<void>(node_at_fault(finding));
  }
  Reports reports;
  while (!rest.empty() && reports.size() < kMostNodes) {
    const std::size_t end = std::min(rest.find('\0'), rest.size());
    auto report = parse_report(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!report) {
      require(!report.error().message.empty());
      reports.emplace_back();
      continue;
    }
    const auto again = parse_report(to_json(*report));
    require(again && *again == *report);
    report->facts.node = static_cast<int>(reports.size());  // as node 0 does
    reports.emplace_back(*std::move(report));
  }
  const auto findings = findings_of(reports);
  require(is_printable(table_text(reports, findings)));
  const auto again = parse_findings(to_json(findings));
  require(again && again->size() == findings.size());
  static_cast<void>(whole_json(reports, findings));
  return 0;
}

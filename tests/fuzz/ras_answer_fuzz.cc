// Any answer from NCCL's RAS service, or from another program on its port, is read the same
// independently of its division into pieces, and is judged without harm.
#include <cstdlib>
#include <string_view>

#include "agent/nccl_ras/ras_position.h"
#include "agent/nccl_ras/ras_report.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace drun::agent::ras;
  if (size == 0) return 0;
  // The first byte selects the position of the cut, and whether a greeting precedes the text.
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t cut = text.empty() ? 0 : data[0] % text.size();
  constexpr std::string_view kGreeting = "SERVER PROTOCOL 2\nOK\n";
  Answer whole;
  Answer parts;
  if (data[0] % 2 == 0) {
    whole.take(kGreeting);
    parts.take(kGreeting);
  }
  whole.take(text);
  parts.take(text.substr(0, cut));
  parts.take(text.substr(cut));
  const auto report = whole.finish();
  if (parts.finish() != report) std::abort();
  if (!report) return 0;
  const Own own{.addresses = {"10.0.0.1", ""}, .pids = {{1, 2}, {3}, {}}};
  const Findings findings = find(*report, own, 0);
  if (findings.positions.size() != own.pids.size()) std::abort();
  return 0;
}

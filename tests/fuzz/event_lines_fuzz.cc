// For any event files of `drun report`, the phases add up to the wall time, the page contains no
// markup from the input, and the text contains no control character.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <string>
#include <string_view>

#include "launcher/report/timeline.h"
#include "launcher/report/timeline_views.h"

namespace {

using namespace drun;

void require(bool is_true) {
  if (!is_true) std::abort();
}

bool is_safe(char c) {
  return static_cast<unsigned char>(c) >= 0x20 ? c != 0x7f : c == '\n' || c == '\t';
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  timeline::Builder builder;
  builder.take({reinterpret_cast<const char*>(data), size});
  const auto job = builder.build(
      {.since_epoch_s = 1.8e9, .is_running = [](std::string_view, int pid) { return pid == 7; }});
  if (!job) return 0;
  const double sum = std::accumulate(job->ledger.begin(), job->ledger.end(), 0.0);
  require(std::isfinite(job->wall_s) && std::abs(sum - job->wall_s) <= 0.01 * job->wall_s + 1e-6);
  const std::string page = report_html(*job);
  require(page.find("<script") == page.npos && page.find("<img") == page.npos);
  require(page.size() < 2'000'000);
  const std::string text = report_text(*job, {.columns = 80});
  require(std::all_of(text.begin(), text.end(), is_safe) && text.ends_with('\n'));
  return 0;
}

// Feeds arbitrary answers, and an arbitrary list of sockets, to the client side of `drun status`
// and `drun logs`. Each is parsed or rejected, and the printed text has no control characters.
//
// Input: an answer, a zero byte, and a list of sockets.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "agent/status/log_query.h"
#include "launcher/base/words.h"
#include "launcher/commands/local_jobs.h"
#include "launcher/report/status_text.h"

namespace {

using namespace drun;

void require(bool is_true) {
  if (!is_true) std::abort();
}

bool is_safe(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 ? c != 0x7f : c == '\n' || c == '\t';
  });
}

void check_answer(std::string_view answer) {
  if (const auto names = status_names(answer)) {
    static_cast<void>(is_called(*names, "job"));
    static_cast<void>(names->has_met());
  }
  for (const std::string& text : {status_text(answer), job_text(answer)})
    require(is_safe(text) && (text.empty() || text.ends_with('\n')));
  static_cast<void>(is_job_status(answer));
  static_cast<void>(node_logs(answer));
  static_cast<void>(nodes_that_continue(answer, 1));
  if (const auto row = job_row(answer)) {
    require(is_safe(job_table({*row}, std::nullopt)));
    require(is_safe(job_table({*row}, 80)));
  }
  if (const auto part = agent::parse_log_answer(answer))
    require(agent::parse_log_answer(agent::log_answer(*part)) == part);
  if (const auto query = agent::parse_log_request(answer))
    require(agent::parse_log_request(agent::log_request(*query)) == query);
}

void check_list(const std::string& text) {
  for (const unsigned user : {0U, 1000U}) {
    std::istringstream list(text);
    for (const std::string& name : sockets_in(list, "drun", user)) {
      require(name.starts_with(user == 0 ? "drun/" : "drun/1000/"));
      static_cast<void>(is_socket_of(name, 77));
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(text.find('\0'), text.size());
  check_answer(text.substr(0, end));
  check_list(std::string(text.substr(std::min(end + 1, text.size()))));
  return 0;
}

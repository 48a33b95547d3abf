// core. One query to NCCL's RAS service, and its answer.
//
// Protocol: lines of text over TCP, at NCCL_RAS_ADDR (default: localhost:28028), where every
// process
//          of the node listens. All lines are sent at once. The service answers each command with
//          one line ("OK", or "ERROR: ..." for an unknown command), then sends the report and
//          closes the connection. The report is JSON since NCCL 2.28.7; older versions do not know
//          that format and send text.
// Source:  as ras_report.h.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "agent/nccl_ras/ras_json.h"
#include "agent/nccl_ras/ras_report.h"
#include "agent/nccl_ras/ras_text.h"

namespace drun::agent::ras {

// TIMEOUT is the time in seconds for which the service waits for processes that do not respond.
constexpr std::string_view kQuestion =
    "CLIENT PROTOCOL 2\nTIMEOUT 2\nSET FORMAT json\nVERBOSE STATUS\n";

constexpr std::size_t kMostAnswerBytes = std::size_t{64} << 20;

class Answer {
 public:
  Answer() : json_(report_), text_(report_) {}
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  // Takes the next bytes of the answer, cut anywhere. False if the answer is invalid or too large;
  // the rest is then ignored.
  bool take(std::string_view bytes);

  // Absent if the answer is incomplete.
  std::optional<Report> finish();

 private:
  bool take_line(std::string_view line);

  Report report_{};
  JsonAnswer json_;
  TextAnswer text_;
  std::string line_{};
  bool is_greeted_ = false;
  bool is_json_ = false;
  bool is_broken_ = false;
  std::size_t bytes_ = 0;
};

}  // namespace drun::agent::ras

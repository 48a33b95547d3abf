// core. One question to NCCL's RAS service: what is sent, and what its answer says.
//
// Protocol: lines of text over TCP, at NCCL_RAS_ADDR (else localhost:28028), where every process of
//          the node listens. All is sent at once. The service answers each line with one ("OK",
//          "ERROR: ..." to what it does not know), then the question, and closes the connection.
//          The answer is JSON from NCCL 2.28.7 on; older versions do not know that format and
//          answer with text.
// Owner:   a value in a fixed place.   Thread: any, one at a time.
// Source:  as report.h.
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

// The service waits so long for processes that do not answer it.
constexpr std::string_view kQuestion =
    "CLIENT PROTOCOL 2\nTIMEOUT 2\nSET FORMAT json\nVERBOSE STATUS\n";

constexpr std::size_t kMostAnswerBytes = std::size_t{64} << 20;

class Answer {
 public:
  Answer() : json_(report_), text_(report_) {}
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  // As bytes come, cut anywhere. False: it is no answer, or too large; the rest is not looked at.
  bool take(std::string_view bytes);

  // Nothing: no whole answer was there.
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

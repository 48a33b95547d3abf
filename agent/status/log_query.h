// core. A question of `drun logs` to the local agent, and its answer, as bytes of the local socket.
//
// Request: "RANK ROUND STREAM OFFSET\n": the round may be "-" for the latest; the stream is "out"
// or
//          "err".
// Answer:  a line with a JSON object (round, size, label, note), then the text as it is.
// Errors:  absent for other bytes.   Thread: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/job/log_part.h"

namespace drun::agent {

std::string log_request(const LogQuery& query);
std::optional<LogQuery> parse_log_request(std::string_view request);

std::string log_answer(const LogPart& part);
std::optional<LogPart> parse_log_answer(std::string_view answer);

}  // namespace drun::agent

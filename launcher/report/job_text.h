// core. What an agent says of its whole job (agent/status/node_status.h), in words.
// Thread: any.
#pragma once

#include <string>
#include <string_view>

namespace drun {

// Whether `json` is of the schema that job_text understands.
bool is_job_status(std::string_view json);

// Several lines, the last one ended. Empty when `json` is no status of a job. Control characters in
// names are made visible.
std::string job_text(std::string_view json);

}  // namespace drun

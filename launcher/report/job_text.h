// core. The status of a whole job, as reported by an agent (agent/status/node_status.h), as text.
#pragma once

#include <string>
#include <string_view>

namespace drun {

// Whether `json` has the schema that job_text expects.
bool is_job_status(std::string_view json);

// Several lines, each ending with a newline. Empty if `json` is not the status of a job. Makes
// control characters in names visible.
std::string job_text(std::string_view json);

}  // namespace drun

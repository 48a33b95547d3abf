// core. `drun status` as text, from the JSON of agents (agent/status/node_status.h). Control
// characters in names are made visible.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/result.h"

namespace drun {

// Identifies a job for `drun status`.
struct StatusNames {
  std::string run_id;
  int agent_pid = 0;
  int drun_pid = 0;
  std::string meeting_point{};  // with the run id, common to all agents of a job
  bool has_met() const { return meeting_point != "null null"; }  // false before the first world
};

// Whether `job` is the run id, or the pid of the agent on this machine or of drun.
bool is_called(const StatusNames& names, std::string_view job);

// Parses an agent's status. Errors: Refused, if this drun does not understand it.
Result<StatusNames> status_names(std::string_view json);

// Of one node: several lines, each ending with a newline. Empty if `json` is not its status.
std::string status_text(std::string_view json);

// Whether `json` has the schema that job_text reads.
bool is_job_status(std::string_view json);

// Of a whole job: several lines, each ending with a newline. Empty if `json` is not its status.
std::string job_text(std::string_view json);

}  // namespace drun

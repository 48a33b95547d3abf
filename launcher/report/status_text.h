// core. `drun status` as text, from the JSON of agents (agent/status/node_status.h). Control
// characters in names are made visible.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/result.h"

namespace drun {

// What `drun status` finds a job by.
struct StatusNames {
  std::string run_id;
  int agent_pid = 0;
  int drun_pid = 0;
  std::string meeting_point{};  // what agents of one job share, with the run id
  bool has_met() const { return meeting_point != "null null"; }  // before the first world
};

// By what a user may call a job: its run id, or the pid of its agent here or of drun.
bool is_called(const StatusNames& names, std::string_view job);

// `json` as it came from an agent. Errors: Refused; it is not a status that this drun understands.
Result<StatusNames> status_names(std::string_view json);

// Of one node: several lines, the last one ended. Empty if `json` is no such status.
std::string status_text(std::string_view json);

// Whether `json` has the schema that job_text reads.
bool is_job_status(std::string_view json);

// Of a whole job: several lines, the last one ended. Empty if `json` is no such status.
std::string job_text(std::string_view json);

}  // namespace drun

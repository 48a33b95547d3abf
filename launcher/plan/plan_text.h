// core. The plan in words and as JSON: what --dry-run prints.
//
// JSON:    schema "drun.plan/1"; fields are only ever added:
//            schema, run_id, node_rank (null: not known yet), nodes, min_nodes, workers_per_node
//            (this node's), max_restarts, role
//            engine       {name, values: [{what, value, from}], removed_variables: [name]}
//            rendezvous   {endpoint, is_coordinator, store: "agent"|"worker", join_timeout_s,
//                          heartbeat_timeout_s}
//            command      [argv of a worker, templates not yet filled in]
//            programs     null, or one object a program: launcher/plan/programs.h; `command` and
//                         `environment` are then the first one's
//            wrap         around that command: null, or {command: [words], ranks: [global ranks] or
//                         null for all}
//            environment  {drun's own variables of local rank 0; "?" where only the round can tell}
//            placement    null, or one object a worker: placement/placement_text.h
//            output       {mode, log_dir or null, streams: [{local_rank, stdout, stderr}]} with
//                         "console", "file", "console+file" or "none" a stream
//            stdin, shutdown_timeout_s, leftovers, termination_signals, report or null, html_report
//            or null notes, warnings [text], cannot_start: text or null
// Thread:  any.
#pragma once

#include <string>

#include "launcher/plan/plan.h"

namespace drun {

// Ends with a newline; lines as wide as they need to be.
std::string plan_text(const Plan& plan);
std::string plan_json(const Plan& plan);

// The words of a command as a POSIX shell would need them.
std::string shell_quoted(const std::vector<std::string>& words);

}  // namespace drun

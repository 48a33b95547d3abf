// core. The plan as text and as JSON: the output of --dry-run.
//
// JSON:    schema "drun.plan/1"; later versions only add fields:
//            schema, run_id, node_rank (null: not known yet), nodes, min_nodes, workers_per_node
//            (of this node), max_restarts, role
//            engine       {name, values: [{what, value, from}], removed_variables: [name]}
//            rendezvous   {endpoint, is_coordinator, store: "agent"|"worker", join_timeout_s,
//                          heartbeat_timeout_s}
//            command      [argv of a worker, with unexpanded templates]
//            programs     null, or one object per program: launcher/plan/programs.h; `command` and
//                         `environment` then belong to the first one
//            wrap         wrapper of that command: null, or {command: [words], ranks: [global
//            ranks]
//                         or null for all}
//            environment  {drun's variables for local rank 0; "?" if known only in the round}
//            placement    null, or one object per worker: placement/place.h
//            output       {mode, log_dir or null, streams: [{local_rank, stdout, stderr}]} with
//                         "console", "file", "console+file" or "none" per stream
//            stdin, shutdown_timeout_s, leftovers, termination_signals, report or null, html_report
//            or null, notes, warnings [text], cannot_start: text or null
#pragma once

#include <string>

#include "launcher/plan/plan.h"

namespace drun {

// Ends with a newline. Lines are not wrapped.
std::string plan_text(const Plan& plan);
std::string plan_json(const Plan& plan);

}  // namespace drun

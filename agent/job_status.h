// core. What a node's agent says of its whole job when it is asked: `drun status`.
//
// Shape:   what the coordinator's census says; where there is none, this node alone and a note why.
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <string>

#include "agent/node_status.h"
#include "rendezvous/census.h"

namespace drun::agent {

// This node's word for a census.
NodeSummary summary_of(const NodeStatus& status);

// One JSON object, schema "drun.job/1" (launcher/LOOKING.md), newline at the end. Bytes that are
// not UTF-8 become U+FFFD. Never throws.
std::string job_json(const NodeStatus& own, const Census& census);

}  // namespace drun::agent

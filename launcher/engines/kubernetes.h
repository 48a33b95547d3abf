// core. Facts of a pod in an Indexed Job, which includes JobSet. JOB_COMPLETION_INDEX is the node
// rank, and the host name ends in it. The number of nodes must be given by the user. Kubeflow's
// PET_ variables are options and need no rule.
//
// The name of node 0 is this pod's name with index 0, if the job has a headless service
// (subdomain): the kubelet then writes the full name to /etc/hosts. Based on the documentation of
// Job, JobSet and Kubeflow; not tested in a cluster.
#pragma once

#include <optional>

#include "launcher/engines/engine_facts.h"

namespace drun::engines {

// Absent without a completion index.
std::optional<Facts> kubernetes(const EngineContext& context);

}  // namespace drun::engines

// core. What a pod of an Indexed Job, and so of a JobSet, knows of itself: JOB_COMPLETION_INDEX is
// the node rank, and the host name ends in it; how many there are must be given. Kubeflow's PET_
// variables are options and need no rule.
//
// Shape:   node 0's name is this pod's own with index 0, if the job has a headless service
//          (subdomain): the kubelet writes the whole name to /etc/hosts.
// Source:  the documentation of Job, JobSet and Kubeflow; not tried in a cluster.
// Thread:  any.
#pragma once

#include <optional>

#include "launcher/engines/engine_facts.h"

namespace drun::engines {

// Absent: no completion index.
std::optional<Facts> kubernetes(const Surroundings& around);

}  // namespace drun::engines

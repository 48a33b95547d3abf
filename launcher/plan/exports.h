// core. -x: variables for the workers. They do not affect drun itself, here or on the hosts, except
// that CUDA_VISIBLE_DEVICES and similar variables select the GPUs that drun counts and places.
//
//          -x VAR          uses the value of VAR here; warns if it is not set
//          -x VAR=VALUE    the value extends to the end of the word, including commas
//          -x A,B          the same as -x A -x B
// Errors:  Usage.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/rendezvous.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/world.h"

namespace drun::hosts {

// Each name occurs once; the last value wins.
Result<std::vector<EnvironmentEntry>> exported(const std::vector<std::string>& exports,
                                               const Lookup& here, PlanNotes& notes);

// Adds `entry`, replacing an older one of that name.
void put(std::vector<EnvironmentEntry>& environment, EnvironmentEntry entry);

}  // namespace drun::hosts

// core. -x: variables for the workers. They change nothing about drun itself, here or on the hosts;
// CUDA_VISIBLE_DEVICES and its kin say on the hosts which GPUs drun counts and places.
//
//          -x VAR          with the value that it has here; when it has none, a warning
//          -x VAR=VALUE    the value goes to the end of the word, commas included
//          -x A,B          as -x A -x B
// Errors:  Usage.   Thread: any.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/rendezvous.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/world.h"

namespace drun::hosts {

// Each name once; the last wins.
Result<std::vector<EnvironmentEntry>> exported(const std::vector<std::string>& exports,
                                               const Lookup& here, Remarks& remarks);

// Puts `entry` into the environment, in the place of an older one.
void put(std::vector<EnvironmentEntry>& environment, EnvironmentEntry entry);

}  // namespace drun::hosts

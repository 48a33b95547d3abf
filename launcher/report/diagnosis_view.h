// core. A diagnosis (agent/diagnosis) as the reports show it, and the diagnosis of a job that is
// only known from its events.
// Thread: any.
#pragma once

#include <string>

#include "agent/diagnosis/diagnosis.h"
#include "launcher/report/timeline.h"

namespace drun {

// "desync", "out of memory on a GPU"
std::string title_of(agent::FaultClass fault);

// The advice, preceded by whether a restart can help, if that is known.
std::string advice_text(const agent::Diagnosis& diagnosis);

// Of a job that runs or has succeeded: of class None.
agent::Diagnosis diagnosis_of(const timeline::Job& job);

}  // namespace drun

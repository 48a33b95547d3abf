// edge. The ranks of a new group tell one another how to reach them, over the group's store.
#pragma once

#include <string>
#include <vector>

#include "drun/backend.h"

namespace drun::worker {

// Returns every rank's text, in rank order. Rank 0 collects them, so that each of the others needs
// a single value. `name`: of the store's keys; used once per group. The texts are any bytes.
// Errors: the store's WorkerError; BackendFailure (System) if the store's value is not such texts.
std::vector<std::string> gather_texts(const BackendContext& context, const std::string& name,
                                      const std::string& own);

}  // namespace drun::worker

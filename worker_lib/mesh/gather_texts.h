// edge. The ranks of a new group tell one another how to reach them, over the group's store.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "drun/backend.h"

namespace drun::worker {

// How often a rank that waits for others to connect checks whether they have ended.
constexpr std::chrono::milliseconds kBetweenEndChecks{200};
BackendFailure loss_of_unconnected(int rank);

// Waits until the context's store has these keys, which `ranks` set. Throws BackendFailure:
// PeerLost if one of them has ended, and, for subgroups, Timeout; otherwise the store's
// WorkerError.
void await_keys(const BackendContext& context, const std::vector<std::string>& keys,
                const std::vector<int>& ranks);
// The same for one key; returns its value.
std::string await_text(const BackendContext& context, const std::string& key,
                       const std::vector<int>& ranks);
std::vector<int> other_ranks(const BackendContext& context);
// Removes a key that no rank waits for any more from the context's store. Does not fail.
void forget_key(const BackendContext& context, const std::string& key);

// Returns every rank's text, in rank order. Rank 0 collects them, so that each of the others needs
// a single value. `name`: of the store's keys; used once per group. The texts are any bytes. Once
// every rank has them, the keys are removed.
// Errors: as await_keys; BackendFailure (System) if the store's value is not such texts.
std::vector<std::string> gather_texts(const BackendContext& context, const std::string& name,
                                      const std::string& own);

}  // namespace drun::worker

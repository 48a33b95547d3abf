#include "worker_lib/mesh/gather_texts.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "rendezvous/base/bytes.h"
#include "worker_lib/base/deadline.h"
#include "worker_lib/base/signature.h"

namespace drun::worker {
namespace {

// A store that is there answers within this time.
constexpr std::chrono::milliseconds kAnswerTime{1000};

// The store is only kept small: the rank that hosts it may have ended.
template <typename Action>
void clean_up(Action&& action) {
  try {
    action();
  } catch (const WorkerError&) {
  }
}

}  // namespace

void forget_key(const BackendContext& context, const std::string& key) {
  clean_up([&] { context.store->remove(key, kAnswerTime); });
}

BackendFailure loss_of_unconnected(int rank) {
  return {WorkerError::Kind::PeerLost, rank,
          "the process of rank " + std::to_string(rank) + " ended before it had connected", true};
}

void await_keys(const BackendContext& context, const std::vector<std::string>& keys,
                const std::vector<int>& ranks) {
  KeyStore& store = *context.store;
  if (!context.ended_rank) return store.wait(keys, left_until(context.deadline));
  while (true) {
    try {
      return store.wait(keys, std::min(left_until(context.deadline), kBetweenEndChecks));
    } catch (const WorkerError& error) {
      if (error.kind() != WorkerError::Kind::Timeout) throw;
    }
    const std::optional<int> ended = context.ended_rank(ranks);
    const bool is_late = Deadline::clock::now() >= context.deadline;
    if (!ended && !is_late) continue;
    // A rank that has done its part may end.
    const auto is_there = [&](const std::string& key) { return store.has(key, kAnswerTime); };
    if (std::all_of(keys.begin(), keys.end(), is_there)) return;
    if (ended) throw loss_of_unconnected(*ended);
    std::optional<int> peer;
    if (ranks.size() == 1) peer = ranks.front();
    throw BackendFailure(
        WorkerError::Kind::Timeout, peer,
        (peer ? "" : "one of ") + describe_ranks(ranks) + " did not connect in time");
  }
}

std::string await_text(const BackendContext& context, const std::string& key,
                       const std::vector<int>& ranks) {
  if (context.ended_rank) await_keys(context, {key}, ranks);
  return context.store->get(key, left_until(context.deadline));
}

std::vector<int> other_ranks(const BackendContext& context) {
  std::vector<int> ranks(static_cast<std::size_t>(context.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::erase(ranks, context.rank);
  return ranks;
}

std::vector<std::string> gather_texts(const BackendContext& context, const std::string& name,
                                      const std::string& own) {
  KeyStore& store = *context.store;
  const auto key_of = [&](int rank) { return name + "/" + std::to_string(rank); };
  const std::string key_of_all = name + "/all";
  std::string all;
  if (context.rank == 0) {
    ByteWriter writer(all);
    writer.text(own);
    for (int rank = 1; rank < context.size; ++rank)
      writer.text(await_text(context, key_of(rank), {rank}));
    store.set(key_of_all, all, left_until(context.deadline));
  } else {
    store.set(key_of(context.rank), own, left_until(context.deadline));
    all = await_text(context, key_of_all, other_ranks(context));
    clean_up([&] {
      const std::string key_of_readers = name + "/readers";
      store.remove(key_of(context.rank), kAnswerTime);  // rank 0 has read it
      if (store.add(key_of_readers, 1, kAnswerTime) < context.size - 1) return;
      store.remove(key_of_all, kAnswerTime);
      store.remove(key_of_readers, kAnswerTime);
    });
  }
  std::vector<std::string> texts;
  texts.reserve(static_cast<std::size_t>(context.size));
  ByteReader reader(all);
  for (int rank = 0; rank < context.size; ++rank) texts.emplace_back(reader.text(all.size()));
  if (reader.failed())
    throw BackendFailure(WorkerError::Kind::System, std::nullopt,
                         "the store's value " + key_of_all + " is not the addresses of " +
                             std::to_string(context.size) + " ranks");
  return texts;
}

}  // namespace drun::worker

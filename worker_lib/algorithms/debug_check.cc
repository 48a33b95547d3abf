#include "worker_lib/algorithms/debug_check.h"

#include <string>
#include <vector>

#include "worker_lib/algorithms/collectives.h"
#include "worker_lib/base/signature.h"

namespace drun::worker {
namespace {

// What ranks tell each other.
struct Note {
  Signature call{};
  char is_agreed = 1;  // as far as the sender has heard
};

// In round k each rank notifies the rank 2^k after it; in the end a difference on any rank has
// reached all others.
bool is_agreed_by_all(Exchange& mesh, const Signature& call) {
  bool is_agreed = true;
  for (int distance = 1; distance < mesh.size(); distance *= 2) {
    const Note told{call, static_cast<char>(is_agreed)};
    Note heard;
    const auto in = mesh.recv(mesh.rank_after(mesh.rank(), -distance), &heard, sizeof heard);
    const auto out = mesh.send(mesh.rank_after(mesh.rank(), distance), &told, sizeof told);
    mesh.wait(in);
    mesh.wait(out);
    is_agreed = is_agreed && heard.is_agreed != 0 && heard.call == call;
  }
  return is_agreed;
}

// Each rank's `mine`, in rank order.
template <typename T>
std::vector<T> all_of(Exchange& mesh, const std::vector<T>& mine) {
  std::vector<T> all(mine.size() * static_cast<std::size_t>(mesh.size()));
  run_collective(mesh, {.operation = Operation::AllGather,
                        .input = mine.data(),
                        .output = all.data(),
                        .count = mine.size() * sizeof(T)});
  return all;
}

BackendFailure disagreement_about(std::uint32_t sequence, const std::string& what) {
  return {WorkerError::Kind::Mismatch, std::nullopt,
          "the ranks disagree about collective number " + std::to_string(sequence) + ": " + what};
}

// What this rank sends to each rank, then what it expects from each.
std::vector<std::uint64_t> counts_of(const Exchange& mesh, const Call& call) {
  const auto size = static_cast<std::size_t>(mesh.size());
  const auto root = static_cast<std::size_t>(call.root);
  const bool is_root = mesh.rank() == call.root;
  std::vector<std::uint64_t> counts(2 * size);
  const auto set = [&](std::size_t from, const std::size_t* values) {
    for (std::size_t i = 0; i < size; ++i) counts[from + i] = values[i];
  };
  if (call.operation == Operation::Gather) {
    counts[root] = call.count;
    if (is_root) set(size, call.counts_out);
  } else if (call.operation == Operation::Scatter) {
    counts[size + root] = call.count;
    if (is_root) set(0, call.counts_in);
  } else {
    set(0, call.counts_in);
    set(size, call.counts_out);
  }
  return counts;
}

}  // namespace

void agree(Exchange& mesh, const Call& call, std::uint32_t sequence) {
  const Signature mine = signature_of(call, mesh.size());
  if (is_agreed_by_all(mesh, mine)) return;
  throw disagreement(sequence, all_of<Signature>(mesh, {mine}));
}

BackendFailure disagreement(std::uint32_t sequence, const std::vector<Signature>& by_rank) {
  return disagreement_about(sequence, describe_disagreement(by_rank));
}

BackendFailure message_mismatch(int from, const Signature& sent, const Signature& expected) {
  return {WorkerError::Kind::Mismatch, from,
          "rank " + std::to_string(from) + " sends " + describe(sent) + ", this rank receives " +
              describe(expected)};
}

void compare_counts(Exchange& mesh, const Call& call, std::uint32_t sequence) {
  const bool is_private = call.operation == Operation::Gather ||
                          call.operation == Operation::Scatter ||
                          call.operation == Operation::AllToAll;
  if (!call.is_uneven || !is_private) return;
  const auto size = static_cast<std::size_t>(mesh.size());
  const std::vector<std::uint64_t> all = all_of(mesh, counts_of(mesh, call));
  for (std::size_t from = 0; from < size; ++from) {
    for (std::size_t to = 0; to < size; ++to) {
      const std::uint64_t sent = all[from * 2 * size + to];
      const std::uint64_t expected = all[to * 2 * size + size + from];
      if (sent == expected) continue;
      throw disagreement_about(sequence, to_string(call) + " gives " + std::to_string(sent) +
                                             " elements from rank " + std::to_string(from) +
                                             " to rank " + std::to_string(to) + ", which expects " +
                                             std::to_string(expected));
    }
  }
}

}  // namespace drun::worker

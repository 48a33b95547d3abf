#include "worker_lib/algorithms/debug_check.h"

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

}  // namespace

void agree(Exchange& mesh, const Call& call, std::uint32_t sequence) {
  const Signature mine = signature_of(call, mesh.size());
  if (is_agreed_by_all(mesh, mine)) return;
  check_same_calls(sequence, all_of<Signature>(mesh, {mine}));
}

void compare_counts(Exchange& mesh, const Call& call, std::uint32_t sequence) {
  if (!has_private_counts(call)) return;
  const PartCounts mine = part_counts(call, mesh.rank(), mesh.size());
  check_part_counts(call, sequence, all_of(mesh, mine), mesh.size());
}

}  // namespace drun::worker

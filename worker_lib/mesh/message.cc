#include "worker_lib/mesh/message.h"

namespace drun::worker {
namespace {

using Kind = WorkerError::Kind;

std::string name_of(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

bool PendingReceive::accept(int from_rank, std::size_t message_bytes) {
  sender = from_rank;
  size_bytes = message_bytes;
  if (message_bytes <= room_bytes) return true;
  misfit = name_of(from_rank) + " sends " + std::to_string(message_bytes) +
           " bytes, this rank has room for " + std::to_string(room_bytes);
  return false;
}

void PendingReceive::check_fit() const {
  if (!misfit.empty()) throw BackendFailure(Kind::Mismatch, sender, misfit);
}

BackendFailure PeerEnd::failure(int rank) const {
  if (is_told)
    return {Kind::PeerLost, rank, name_of(rank) + " ended before it had done its part", true};
  return {Kind::PeerLost, rank, "lost the connection to " + name_of(rank) + ": " + why};
}

BackendFailure loss_of_all_others() {
  return {Kind::PeerLost, std::nullopt, "lost the connections to the others"};
}

BackendFailure lateness_of_peer(std::optional<int> peer) {
  return {Kind::Timeout, peer,
          (peer ? name_of(*peer) + " did not do its" : "the others did not do their") +
              " part in time; run with DRUN_DEBUG=1 to learn which rank calls something else"};
}

BackendFailure aborted_failure() {
  return {Kind::Broken, std::nullopt, "another operation of this rank has failed"};
}

}  // namespace drun::worker

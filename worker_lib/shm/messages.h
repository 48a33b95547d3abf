// core. Messages between ranks: matches sends with recvs.
//
// Progress: a thread that waits for or polls a message makes progress for all messages of its rank.
//           Otherwise, data moves only when a message is started, as much as fits into the rings.
// Order:    messages between the same two ranks with the same tag are matched with recvs in the
//           order in which both were started. A recv from any rank takes the first message.
// Limits:   a short message (short_bytes()) is done when sent, unless the receiver already holds
//           kMostKeptBytes of this sender without a recv. Such messages, and longer ones, are done
//           when the receiver has requested the data.
// Thread:   any, concurrently. Never waits for a collective.
// Errors:   BackendFailure: Mismatch on the receiver; Timeout; PeerLost for a rank that has ended
//           (with any rank: when all have ended); the abort flag's reason.
#pragma once

#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "drun/backend.h"
#include "worker_lib/mesh/matcher.h"
#include "worker_lib/shm/link.h"
#include "worker_lib/shm/peer_memory.h"
#include "worker_lib/shm/wait.h"

namespace drun::worker::shm {

class Messages {
 public:
  Messages(const Segment& segment, int rank, SpinPolicy spin, AbortFlag& abort_flag,
           PeerMemory& peers);

  // Null: it is done already.
  std::unique_ptr<Transfer> start_send(const ConstElements& data, int to, int tag);
  std::unique_ptr<Transfer> start_recv(const Elements& data, std::optional<int> from, int tag,
                                       ClaimSide claim = {});

 private:
  template <typename Message>
  class Started;
  // A message without a recv.
  struct Kept {
    int from = 0;
    std::uint64_t slot = 0;  // the tag
    std::uint64_t order = 0;
    Frame frame;
    std::vector<std::byte> bytes;  // of Short
  };
  // A long message that is being read from its sender's memory.
  struct Fetch {
    int from = 0;
    std::uint64_t number = 0;
    std::uint64_t address = 0;
    std::shared_ptr<Incoming> to;
  };

  // Whether a wait would end at once. Moves messages for a moment while there is progress.
  template <typename Question>
  bool would_end(const std::optional<int>& peer, Question&& is_done);
  // Moves messages until is_done(), which is called with the lock held. False if the deadline
  // passes. `peer`: the rank that must do its part; absent: any. It can change with the lock held.
  template <typename Question>
  bool wait_until(Deadline deadline, const std::optional<int>& peer, Question&& is_done);
  bool is_hopeless(std::optional<int> peer) const;
  std::vector<int> others() const;
  bool has_frames() const;
  bool has_taken(int from, const Frame& wanted, std::byte* data);
  void wake(int peer);
  // Moves messages. True if any data moved.
  bool move();
  void sort(int from, const Frame& frame);
  void take_kept(const std::shared_ptr<Incoming>& wanted, const Kept& kept);
  void accept(const std::shared_ptr<Incoming>& wanted, int from, const Frame& frame);
  bool fetch_some();
  bool has_fetched(const Fetch& fetch);
  Link& link(int peer) { return *links_[static_cast<std::size_t>(peer)]; }

  Segment segment_;
  AbortFlag& abort_flag_;
  PeerMemory& peers_;
  const int rank_;
  const SpinPolicy spin_;

  std::mutex mutex_;                          // guards all members below
  std::vector<std::unique_ptr<Link>> links_;  // by rank; null for this rank
  // Credits and rings limit the messages without a recv.
  Matcher<std::shared_ptr<Incoming>, std::shared_ptr<Kept>> matcher_{
      std::numeric_limits<std::size_t>::max()};
  std::deque<Fetch> fetches_;
  int first_link_ = 0;  // checked first; rotates
  int waiting_ = 0;     // number of waiting threads
};

}  // namespace drun::worker::shm

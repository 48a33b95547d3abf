// core. Messages between the ranks: matches sends and recvs.
//
// Progress: a thread that waits for a message, or polls it, makes progress for all messages of its
//           rank. Otherwise only data that fits into the rings moves, when it is started.
// Order:    messages of one pair of ranks with the same tag meet recvs in the order both were
//           started. A recv from any rank takes the first message.
// Limits:   a short message (kShortBytes) is done when sent, unless the receiver has
//           kMostKeptBytes of this sender already without a recv; then, and if it is longer, it is
//           done when the receiver has asked for it.
// Thread:   any, at the same time. Never waits for a collective.
// Errors:   BackendFailure: Mismatch on the receiver; Timeout; PeerLost for a rank that has ended
//           (of anyone: when all have); the alarm's reason.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "drun/backend.h"
#include "worker_lib/shm/abort_flag.h"
#include "worker_lib/shm/link.h"
#include "worker_lib/shm/peer_memory.h"
#include "worker_lib/shm/wait.h"

namespace drun::worker::shm {

class Messages {
 public:
  Messages(const Segment& segment, int rank, SpinPolicy patience, AbortFlag& alarm,
           PeerMemory& peers);

  std::unique_ptr<Transfer> start_send(const ConstElements& data, int to, int tag);
  std::unique_ptr<Transfer> start_recv(const Elements& data, std::optional<int> from, int tag);

 private:
  class Sent;
  class Sending;
  class Receiving;
  // A message without a recv so far.
  struct Kept {
    int from = 0;
    Frame frame;
    std::vector<std::byte> bytes;  // of Short
  };
  // A long one that was asked for, while it is read where it is.
  struct Fetch {
    int from = 0;
    std::uint64_t number = 0;
    std::uint64_t address = 0;
    std::shared_ptr<Incoming> to;
  };

  // Whether a wait for that would end at once; moves messages while they move, for a moment.
  template <typename Question>
  bool would_end(std::optional<int> peer, Question&& is_done);
  // Moves messages until is_done, which is asked with the lock held. False: not in time. `peer`:
  // the rank that has to do its part; absent: any.
  template <typename Question>
  bool wait_until(Deadline deadline, std::optional<int> peer, Question&& is_done);
  bool is_hopeless(std::optional<int> peer) const;
  std::vector<int> others() const;
  // Whether anything has.
  bool move();
  void sort(int from, const Frame& frame);
  bool find_kept(const std::shared_ptr<Incoming>& wanted);
  void accept(const std::shared_ptr<Incoming>& wanted, int from, const Frame& frame);
  bool fetch_some();
  bool has_fetched(const Fetch& fetch);
  Link& link(int peer) { return *links_[static_cast<std::size_t>(peer)]; }

  Segment segment_;
  AbortFlag& alarm_;
  PeerMemory& peers_;
  const int rank_;
  const SpinPolicy patience_;

  std::mutex mutex_;                          // for all that follows
  std::vector<std::unique_ptr<Link>> links_;  // by rank; none to itself
  std::list<std::shared_ptr<Incoming>> wanted_;
  std::list<Kept> kept_;  // as they came
  std::deque<Fetch> fetches_;
  int first_link_ = 0;  // looked at first, in turn
  int waiting_ = 0;     // threads
};

}  // namespace drun::worker::shm

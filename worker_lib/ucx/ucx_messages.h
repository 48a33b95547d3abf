// edge. The messages of one rank over UCX: its worker (UCX's word for the state of one rank), the
// connections to the other ranks, and the matching of messages with receives.
//
// Order:   UCX may deliver its active messages out of order. Each has a number, by which the
//          receiver restores the order.
// Ends:    UCX reports some broken connections, depending on the transport. It cannot cancel a
//          message: giving one up that UCX has ends all connections.
// Owner:   the mesh. Keeps pointers to Sends and Receives from start() until they are done or given
//          up.
// Thread:  one at a time.   Errors: throws BackendFailure; System with UCX's text.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "drun/backend.h"
#include "worker_lib/mesh/matcher.h"
#include "worker_lib/mesh/message.h"
#include "worker_lib/ucx/ucx_library.h"

namespace drun::worker::ucx {

// Before the data of each message. All hosts have the same byte order.
struct Header {
  std::uint64_t slot = 0;
  std::uint64_t number = 0;  // of this message among those to this rank, from 0
  std::uint64_t from = 0;
};

struct Send : PendingSend {
  Header header{};
  ucs_status_t status = UCS_OK;  // an error: UCX has ended it
};

struct Receive : PendingReceive {
  bool is_read = false;  // UCX writes to the data
  ucs_status_t status = UCS_OK;
};

// Also a message that has arrived before an earlier one.
struct Arrival : EarlyMessage {
  void* announced = nullptr;  // UCX's descriptor of data that must be read from the sender
};

class Messages {
 public:
  Messages(int rank, int size);
  // Waits until what was sent has left this host.
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

  std::string own_address();
  // Of all ranks. Call it before start().
  void set_addresses(const std::vector<std::string>& addresses);

  void start(Send& send);
  void start(Receive& receive);
  // Throw why it will not be done.
  void check(const Send& send) const;
  void check(const Receive& receive) const;
  // Forget one that is not done.
  void give_up(Send& send) noexcept;
  void give_up(Receive& receive) noexcept;

  // Handles what UCX has. True if there was something.
  bool make_progress();
  // Prepares fd() to become readable for the next event. False: there is one already.
  bool arm();
  int fd() const { return events_; }
  // When the next rank counts as ended; at most `latest`.
  Deadline next_due(Deadline latest) const;

  void abort() noexcept;
  void tell_lost(int rank, bool is_end) noexcept;
  bool has_ended() const { return worker_ == nullptr; }

 private:
  struct Peer {
    std::string address{};
    ucp_ep_h endpoint = nullptr;  // null: not connected yet
    std::uint64_t next_out = 0;   // number of the next message
    std::uint64_t next_in = 0;
    std::map<std::uint64_t, std::shared_ptr<Arrival>> early{};  // by number
    std::optional<Deadline> over_at{};  // set: sends nothing more after that
    PeerEnd end{};
  };
  struct ToRead {
    Receive* receive = nullptr;
    void* descriptor = nullptr;
  };

  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }

  void make_worker();
  Peer& connected(int rank);
  void shut(std::chrono::milliseconds most) noexcept;
  void wait_for(std::vector<void*>& requests, std::chrono::milliseconds most);

  ucs_status_t take(const void* bytes, std::size_t header_bytes, void* data, std::size_t size_bytes,
                    std::uint64_t attributes) noexcept;
  bool take_now(const Header& header, const char* data, std::size_t size_bytes);
  void take_early(Peer& from);
  void give(Receive& receive, const Arrival& arrival);
  void read_announced();
  void break_off(const std::string& why);

  void check_alive() const;
  bool is_over(int rank) const;
  static void lose(Peer& peer, const char* why);
  BackendFailure loss_of(int rank, ucs_status_t status) const;

  // Of one rank without a receive, and those that wait for earlier ones.
  static constexpr std::size_t kMostKept = 1 << 16;

  const Library& ucx_ = Library::get();
  const int rank_;
  const std::shared_ptr<ucp_context> context_ = context_of_process();
  ucp_worker_h worker_ = nullptr;  // null: all connections have ended
  int events_ = -1;                // the worker's descriptor
  std::vector<Peer> peers_;        // by rank
  Matcher<Receive*, std::shared_ptr<Arrival>> matcher_{kMostKept};
  std::unordered_set<void*> announced_;  // UCX's descriptors that this rank holds
  std::vector<ToRead> to_read_;
  std::optional<BackendFailure> failure_;  // found while working for all messages
};

}  // namespace drun::worker::ucx

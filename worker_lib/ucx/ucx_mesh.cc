#include "worker_lib/ucx/ucx_mesh.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "rendezvous/base/unique_fd.h"
#include "worker_lib/base/cores.h"
#include "worker_lib/base/deadline.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/mesh/gather_texts.h"
#include "worker_lib/mesh/mesh_backend.h"
#include "worker_lib/tcp/tcp_mesh.h"
#include "worker_lib/ucx/ucx_library.h"

namespace drun::worker {
namespace ucx {
namespace {

using Kind = WorkerError::Kind;
using Microseconds = std::chrono::microseconds;

constexpr unsigned kMessage = 1;  // the number of drun's active messages
// How long a waiting thread polls before it sleeps.
constexpr Microseconds kPollTime{250};
// UCX's own thread can put off an event to the next progress, without a sign to a thread that
// sleeps.
constexpr std::chrono::milliseconds kMostSleep{10};
// Of one rank without a receive, and those that wait for earlier ones.
constexpr std::size_t kMostKept = 1 << 16;
// What an ended rank had sent before arrives within this time.
constexpr std::chrono::milliseconds kLastWords{500};
// For everything that was sent to leave this host: when the group ends, and when it is aborted.
constexpr std::chrono::milliseconds kFlushTime{10'000};
constexpr std::chrono::milliseconds kStopTime{100};

// Before the data of each message. Both hosts have the same byte order.
struct Header {
  std::uint64_t slot = 0;
  std::uint64_t number = 0;  // of this message among those to this rank, from 0
  std::uint64_t from = 0;
};

// Is at its place until it is done or given up.
struct Send {
  int to = 0;
  Header header{};
  const void* data = nullptr;
  std::size_t size_bytes = 0;
  bool is_done = false;
  ucs_status_t status = UCS_OK;

  std::optional<int> peer() const { return to; }
};

struct Receive {
  std::optional<int> from{};  // absent: from any
  std::uint64_t slot = 0;
  char* data = nullptr;
  std::size_t room_bytes = 0;
  ClaimSide claim{};
  std::uint64_t order = 0;
  // Set once it is matched with a message:
  std::optional<int> sender{};
  bool is_read = false;  // UCX writes to the data
  bool is_done = false;
  ucs_status_t status = UCS_OK;
  std::string misfit{};  // why the message does not fit; empty: it fits

  std::optional<int> peer() const { return sender ? sender : from; }
};

// A message that has arrived before its receive, or before an earlier message.
struct Arrival {
  int from = 0;
  std::uint64_t slot = 0;
  std::size_t size_bytes = 0;
  std::uint64_t order = 0;
  std::vector<char> data{};
  void* announced = nullptr;  // UCX's descriptor of data that must be read from the sender
};

// Owner:   keeps pointers to Sends and Receives from start() until they are done or given up.
// Locks:   one mutex protects everything, UCX's worker too. A thread that sleeps has released it.
class UcxMesh final : public Mesh {
 public:
  explicit UcxMesh(const BackendContext& context)
      : rank_(context.rank),
        context_(context_of_process()),
        bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        peers_(static_cast<std::size_t>(context.size)) {
    if (!bell_) throw BackendFailure(Kind::System, std::nullopt, "UCX: no descriptor is left");
    const int node = context.node_of[static_cast<std::size_t>(rank_)];
    const auto neighbors = std::count(context.node_of.begin(), context.node_of.end(), node);
    has_core_ = neighbors <= usable_cores(online_cores());
    make_worker();
    const std::vector<std::string> addresses = gather_texts(context, "ucx", own_address());
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) peers_[rank].address = addresses[rank];
    if (context.is_lookout) lookout_ = make_tcp_mesh(context);
  }
  ~UcxMesh() override {
    const Lock lock(mutex_);
    shut(kFlushTime);
  }
  UcxMesh(const UcxMesh&) = delete;
  UcxMesh& operator=(const UcxMesh&) = delete;

  std::string name() const override { return "ucx"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }

  Started send(int to, Slot slot, const void* data, std::size_t size_bytes) override {
    return std::make_unique<InMesh<Send>>(
        *this, Send{.to = to,
                    .header = {.slot = slot, .from = static_cast<std::uint64_t>(rank_)},
                    .data = data,
                    .size_bytes = size_bytes});
  }
  Started recv(int from, Slot slot, void* data, std::size_t size_bytes) override {
    return std::make_unique<InMesh<Receive>>(*this, Receive{.from = from,
                                                            .slot = slot,
                                                            .data = static_cast<char*>(data),
                                                            .room_bytes = size_bytes});
  }
  Started recv_any(Slot slot, void* data, std::size_t size_bytes, ClaimSide claim) override {
    return std::make_unique<InMesh<Receive>>(*this, Receive{.slot = slot,
                                                            .data = static_cast<char*>(data),
                                                            .room_bytes = size_bytes,
                                                            .claim = claim});
  }

  void abort() noexcept override {
    {
      const Lock lock(mutex_);
      shut(kStopTime);
    }
    if (lookout_) lookout_->abort();
  }
  bool keeps_deadlines() const override { return true; }
  std::vector<Lifeline> lifelines() const override {
    return lookout_ ? lookout_->lifelines() : std::vector<Lifeline>();
  }
  void tell_lost(int rank) noexcept override {
    if (rank < 0 || rank >= size()) return;
    const Lock lock(mutex_);
    lose(peers_[static_cast<std::size_t>(rank)], "");
    peers_[static_cast<std::size_t>(rank)].has_ended = true;
    wake_all();
  }

 private:
  using Lock = std::unique_lock<std::mutex>;

  // `Of`: Send or Receive.
  template <typename Of>
  class InMesh final : public Transfer {
   public:
    InMesh(UcxMesh& mesh, Of message) : mesh_(mesh), message_(std::move(message)) {
      const Lock lock(mesh_.mutex_);
      mesh_.check_alive();
      mesh_.start(message_);
    }
    ~InMesh() override {
      const Lock lock(mesh_.mutex_);
      if (!message_.is_done) mesh_.give_up(message_);
    }
    InMesh(const InMesh&) = delete;
    InMesh& operator=(const InMesh&) = delete;

    int finish(Deadline deadline) override {
      Lock lock(mesh_.mutex_);
      if (mesh_.drive(
              lock, [this] { return mesh_.is_over(message_); }, deadline))
        return *message_.peer();
      throw lateness(message_.peer());
    }
    std::optional<bool> is_done() override {
      const Lock lock(mesh_.mutex_);
      try {
        mesh_.move();
        return mesh_.is_over(message_);
      } catch (const BackendFailure&) {
        return true;
      }
    }

   private:
    UcxMesh& mesh_;
    Of message_;
  };

  void start(Send& send) {
    Peer& to = connected(send.to);
    if (to.endpoint == nullptr) throw loss(send.to);
    send.header.number = to.next_out++;
    ucp_request_param_t how{};
    how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    how.cb.send = [](void* request, ucs_status_t status, void* self) {
      end(*static_cast<Send*>(self), request, status);
    };
    how.user_data = &send;
    end_if_done(send, ucx_.ucp_am_send_nbx(to.endpoint, kMessage, &send.header, sizeof send.header,
                                           send.data, send.size_bytes, &how));
    if (is_asleep_) ring();  // that thread makes progress for it
  }
  void start(Receive& receive) {
    if (receive.from) connected(*receive.from);
    if (const std::shared_ptr<Arrival> arrival = matcher_.post(&receive)) {
      give(receive, *arrival);
      read_announced();
    }
  }
  void give_up(const Send&) noexcept { shut(kStopTime); }
  void give_up(Receive& receive) noexcept {
    std::erase_if(to_read_, [&](const ToRead& each) { return each.receive == &receive; });
    if (!receive.sender) return matcher_.withdraw(&receive);
    if (receive.is_read) shut(kStopTime);
  }

  struct Peer {
    std::string address{};
    ucp_ep_h endpoint = nullptr;  // null: not connected yet
    std::uint64_t next_out = 0;   // number of the next message
    std::uint64_t next_in = 0;
    std::map<std::uint64_t, std::shared_ptr<Arrival>> early{};  // by number
    std::optional<Deadline> over_at{};  // set: sends nothing more after that
    std::string why{};
    bool has_ended = false;  // tell_lost() has named it
  };

  // Making and ending.
  void make_worker() {
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    check(ucx_.ucp_worker_create(context_.get(), &params, &worker_), "start");
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kMessage;
    handler.arg = this;
    handler.cb = [](void* self, const void* header, std::size_t header_bytes, void* data,
                    std::size_t bytes, const ucp_am_recv_param_t* how) {
      return static_cast<UcxMesh*>(self)->take(header, header_bytes, data, bytes, how->recv_attr);
    };
    check(ucx_.ucp_worker_set_am_recv_handler(worker_, &handler), "receive messages");
    check(ucx_.ucp_worker_get_efd(worker_, &events_), "wait for messages");
  }
  std::string own_address() {
    ucp_address_t* address = nullptr;
    std::size_t bytes = 0;
    check(ucx_.ucp_worker_get_address(worker_, &address, &bytes), "find its addresses");
    const std::string text(reinterpret_cast<const char*>(address), bytes);
    ucx_.ucp_worker_release_address(worker_, address);
    return text;
  }
  // Its endpoint is null if the rank cannot be reached; what it has sent before can still arrive.
  Peer& connected(int rank) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (peer.endpoint != nullptr || peer.over_at) return peer;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(peer.address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = [](void* lost, ucp_ep_h, ucs_status_t status) {
      lose(*static_cast<Peer*>(lost), Library::get().ucs_status_string(status));
    };
    params.err_handler.arg = &peer;
    const ucs_status_t status = ucx_.ucp_ep_create(worker_, &params, &peer.endpoint);
    if (status != UCS_OK) lose(peer, ucx_.ucs_status_string(status));
    return peer;
  }
  // Ends all connections; nothing is read or written afterwards. Waits up to this time until what
  // was sent has left.
  void shut(std::chrono::milliseconds most) noexcept {
    if (worker_ == nullptr) return;
    for (void* announced : announced_) ucx_.ucp_am_data_release(worker_, announced);
    announced_.clear();
    ucp_request_param_t how{};
    std::vector<void*> requests{ucx_.ucp_worker_flush_nbx(worker_, &how)};
    wait_for(requests, most);
    how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    how.flags = UCP_EP_CLOSE_FLAG_FORCE;
    for (Peer& peer : peers_) {
      if (peer.endpoint == nullptr) continue;
      requests.push_back(ucx_.ucp_ep_close_nbx(std::exchange(peer.endpoint, nullptr), &how));
    }
    wait_for(requests, kStopTime);
    ucx_.ucp_worker_destroy(std::exchange(worker_, nullptr));
    wake_all();
  }
  // Frees and removes those that are done.
  void wait_for(std::vector<void*>& requests, std::chrono::milliseconds most) {
    const Deadline until = deadline_in(most);
    while (true) {
      std::erase_if(requests, [this](void* request) {
        if (!UCS_PTR_IS_PTR(request)) return true;
        if (ucx_.ucp_request_check_status(request) == UCS_INPROGRESS) return false;
        ucx_.ucp_request_free(request);
        return true;
      });
      if (requests.empty() || Deadline::clock::now() >= until) return;
      if (ucx_.ucp_worker_progress(worker_) == 0) sched_yield();
    }
  }

  // Out.
  static void end(Send& send, void* request, ucs_status_t status) {
    send.status = status;
    send.is_done = true;
    if (request != nullptr) Library::get().ucp_request_free(request);
  }
  static void end(Receive& receive, void* request, ucs_status_t status) {
    receive.status = status;
    receive.is_done = true;
    receive.is_read = false;
    if (request != nullptr) Library::get().ucp_request_free(request);
  }
  template <typename Each>
  static void end_if_done(Each& each, void* request) {
    if (request == nullptr) return end(each, nullptr, UCS_OK);
    if (UCS_PTR_IS_ERR(request)) end(each, nullptr, UCS_PTR_STATUS(request));
  }

  // In. UCX calls take() while it makes progress. UCS_INPROGRESS keeps the descriptor of announced
  // data.
  ucs_status_t take(const void* bytes, std::size_t header_bytes, void* data, std::size_t size_bytes,
                    std::uint64_t attributes) noexcept {
    Header header;
    if (header_bytes != sizeof header) return is_broken("a message without drun's header");
    std::memcpy(&header, bytes, sizeof header);
    if (header.from >= peers_.size()) return is_broken("a message from an unknown rank");
    Peer& from = peers_[header.from];
    const bool is_announced = (attributes & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    try {
      if (header.number == from.next_in && !is_announced) {
        if (take_now(header, static_cast<const char*>(data), size_bytes)) return UCS_OK;
      }
      const auto arrival = std::make_shared<Arrival>();
      arrival->from = static_cast<int>(header.from);
      arrival->slot = header.slot;
      arrival->size_bytes = size_bytes;
      if (is_announced) {
        arrival->announced = data;
        announced_.insert(data);
      } else if (size_bytes > 0) {
        arrival->data.assign(static_cast<char*>(data), static_cast<char*>(data) + size_bytes);
      }
      if (header.number < from.next_in || from.early.size() >= kMostKept ||
          !from.early.emplace(header.number, arrival).second) {
        is_broken("a message out of order");
      }
      take_early(from);
    } catch (const std::exception& error) {
      is_broken(error.what());
    }
    return is_announced ? UCS_INPROGRESS : UCS_OK;
  }
  // The usual case: the next message, with its data, whose receive is waiting.
  bool take_now(const Header& header, const char* data, std::size_t size_bytes) {
    Receive* const receive = matcher_.meet(static_cast<int>(header.from), header.slot);
    if (receive == nullptr) return false;
    Peer& from = peers_[header.from];
    ++from.next_in;
    if (accept(*receive, static_cast<int>(header.from), size_bytes)) {
      if (size_bytes > 0) std::memcpy(receive->data, data, size_bytes);
      receive->is_done = true;
    }
    take_early(from);
    return true;
  }
  void take_early(Peer& from) {
    for (auto next = from.early.find(from.next_in); next != from.early.end();
         next = from.early.find(from.next_in)) {
      const std::shared_ptr<Arrival> arrival = next->second;
      from.early.erase(next);
      ++from.next_in;
      if (Receive* const receive = matcher_.meet(arrival->from, arrival->slot)) {
        give(*receive, *arrival);
      } else if (!matcher_.keep(arrival)) {
        is_broken("more than " + std::to_string(kMostKept) + " messages without a receive");
      }
    }
  }
  bool accept(Receive& receive, int from, std::size_t size_bytes) const {
    receive.sender = from;
    if (size_bytes <= receive.room_bytes) return true;
    receive.misfit = "rank " + std::to_string(from) + " sends " + std::to_string(size_bytes) +
                     " bytes, this rank has room for " + std::to_string(receive.room_bytes);
    return false;
  }
  void give(Receive& receive, const Arrival& arrival) {
    if (!accept(receive, arrival.from, arrival.size_bytes)) return;
    if (arrival.announced != nullptr) {
      to_read_.push_back({&receive, arrival.announced, arrival.size_bytes});
      return;
    }
    if (!arrival.data.empty()) std::memcpy(receive.data, arrival.data.data(), arrival.data.size());
    receive.is_done = true;
  }
  // Not inside take(): UCX holds the descriptor until that has returned.
  void read_announced() {
    for (const ToRead& each : std::exchange(to_read_, {})) {
      ucp_request_param_t how{};
      how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
      how.cb.recv_am = [](void* request, ucs_status_t status, std::size_t, void* self) {
        end(*static_cast<Receive*>(self), request, status);
      };
      how.user_data = each.receive;
      each.receive->is_read = true;
      announced_.erase(each.descriptor);
      end_if_done(*each.receive,
                  ucx_.ucp_am_recv_data_nbx(worker_, each.descriptor, each.receive->data,
                                            each.size_bytes, &how));
    }
  }
  ucs_status_t is_broken(const std::string& why) {
    if (!failure_) failure_ = BackendFailure(Kind::System, std::nullopt, "UCX delivered " + why);
    return UCS_OK;
  }

  // Waiting.
  bool move() {
    if (worker_ == nullptr) return false;
    bool has_moved = false;
    for (int i = 0; i < kMostSteps && ucx_.ucp_worker_progress(worker_) != 0; ++i) has_moved = true;
    read_announced();
    if (has_moved && (is_asleep_ || waiting_ > 0)) wake_all();
    return has_moved;
  }
  template <typename IsOver>
  bool drive(Lock& lock, IsOver&& is_over, Deadline deadline) {
    const Deadline began = Deadline::clock::now();
    bool is_woken = false;  // by UCX
    while (true) {
      const bool has_moved = move();
      if (is_over()) return true;
      const Deadline now = Deadline::clock::now();
      if (now >= deadline) return false;
      if (now - began < kPollTime) {
        unlocked(lock, [&] {
          if (!has_core_) sched_yield();
        });
      } else if (is_woken && !has_moved) {
        // UCX's own thread has something to do, and needs a core for it.
        unlocked(lock, [] { std::this_thread::sleep_for(Microseconds(50)); });
        is_woken = false;
      } else {
        is_woken = sleep(lock, deadline);
      }
    }
  }
  template <typename Action>
  static void unlocked(Lock& lock, Action&& action) {
    lock.unlock();
    action();
    lock.lock();
  }
  // Until UCX has something to do, another thread rings, or the time is over. True if it is UCX.
  bool sleep(Lock& lock, Deadline deadline) {
    Deadline until = std::min(deadline, Deadline::clock::now() + kMostSleep);
    for (const Peer& peer : peers_) {
      if (peer.over_at && *peer.over_at > Deadline::clock::now())
        until = std::min(until, *peer.over_at);
    }
    if (is_asleep_) {
      ++waiting_;
      changed_.wait_until(lock, until);
      --waiting_;
      return false;
    }
    if (ucx_.ucp_worker_arm(worker_) != UCS_OK) return true;
    pollfd descriptors[] = {{.fd = events_, .events = POLLIN, .revents = 0},
                            {.fd = bell_.get(), .events = POLLIN, .revents = 0}};
    is_asleep_ = true;
    unlocked(lock, [&] {
      ::poll(descriptors, 2, static_cast<int>(left_until(until).count()));
      std::uint64_t rings = 0;
      static_cast<void>(::read(bell_.get(), &rings, sizeof rings) < 0);
    });
    is_asleep_ = false;
    changed_.notify_all();  // one of them sleeps in poll() now
    return descriptors[0].revents != 0;
  }
  void ring() const noexcept {
    const std::uint64_t one = 1;
    static_cast<void>(::write(bell_.get(), &one, sizeof one) < 0);
  }
  void wake_all() noexcept {
    if (is_asleep_) ring();
    changed_.notify_all();
  }

  bool is_over(const Send& send) const {
    if (send.is_done && send.status == UCS_OK) return true;
    check_alive();
    if (send.is_done) throw loss(send.to, ucx_.ucs_status_string(send.status));
    if (is_silent(send.to)) throw loss(send.to);
    return false;
  }
  bool is_over(const Receive& receive) const {
    if (receive.is_done && receive.status == UCS_OK) return true;
    if (!receive.misfit.empty())
      throw BackendFailure(Kind::Mismatch, receive.sender, receive.misfit);
    check_alive();
    const std::optional<int> peer = receive.peer();
    if (receive.is_done) throw loss(*peer, ucx_.ucs_status_string(receive.status));
    if (peer && is_silent(*peer)) throw loss(*peer);
    if (peer) return false;
    for (int rank = 0; rank < size(); ++rank)
      if (rank != rank_ && !is_silent(rank)) return false;
    throw loss(rank_ == 0 ? size() - 1 : 0);
  }
  void check_alive() const {
    if (failure_) throw *failure_;
    if (worker_ != nullptr) return;
    throw BackendFailure(Kind::Broken, std::nullopt, "another operation of this rank has failed");
  }
  bool is_silent(int rank) const {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    return peer.over_at && Deadline::clock::now() >= *peer.over_at;
  }
  static void lose(Peer& peer, const char* why) {
    if (peer.over_at) return;
    peer.over_at = deadline_in(kLastWords);
    peer.why = why;
  }
  BackendFailure loss(int rank, const std::string& why = {}) const {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    const std::string name = "rank " + std::to_string(rank);
    if (peer.has_ended)
      return {Kind::PeerLost, rank, name + " ended before it had done its part", true};
    return {Kind::PeerLost, rank,
            "lost the connection to " + name + ": " + (why.empty() ? peer.why : why)};
  }
  static BackendFailure lateness(std::optional<int> rank) {
    const std::string who = rank ? "rank " + std::to_string(*rank) : "the others";
    return {Kind::Timeout, rank,
            who + " did not do " + (rank ? "its" : "their") +
                " part in time; run with DRUN_DEBUG=1 to learn which rank calls something else"};
  }

  struct ToRead {
    Receive* receive = nullptr;
    void* descriptor = nullptr;
    std::size_t size_bytes = 0;
  };
  // So that a stream of messages does not keep others from the lock.
  static constexpr int kMostSteps = 64;

  const Library& ucx_ = Library::get();
  const int rank_;
  const std::shared_ptr<ucp_context> context_;
  const UniqueFd bell_;
  bool has_core_ = false;  // the ranks of this node have a core each

  std::mutex mutex_;  // of all that follows
  std::condition_variable changed_;
  ucp_worker_h worker_ = nullptr;  // null: ended
  int events_ = -1;                // the worker's descriptor
  bool is_asleep_ = false;         // a thread is in poll()
  int waiting_ = 0;                // further ones
  std::vector<Peer> peers_;        // by rank
  Matcher<Receive*, std::shared_ptr<Arrival>> matcher_{kMostKept};
  std::unordered_set<void*> announced_;  // UCX's descriptors that this mesh holds
  std::vector<ToRead> to_read_;
  std::optional<BackendFailure> failure_;  // found while working for all messages
  std::unique_ptr<Mesh> lookout_;          // null: not asked for
};

}  // namespace
}  // namespace ucx

bool has_ucx() { return true; }

std::unique_ptr<Backend> connect_ucx(const BackendContext& context) {
  return make_mesh_backend(std::make_unique<ucx::UcxMesh>(context), context.is_debug);
}

}  // namespace drun::worker

#include "worker_lib/ucx/ucx_mesh.h"

#include <dlfcn.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <ucp/api/ucp.h>
#include <ucs/config/global_opts.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "rendezvous/base/late_library.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_lib/base/deadline.h"
#include "worker_lib/base/process.h"
#include "worker_lib/mesh/driven_mesh.h"
#include "worker_lib/mesh/gather_texts.h"
#include "worker_lib/tcp/tcp_mesh.h"

namespace drun::worker {
namespace ucx {
namespace {

using Kind = WorkerError::Kind;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// --- The functions of libucp.so.0, which is loaded on first use: few programs need it

// clang-format off
#define DRUN_UCX_FUNCTIONS(X)                                                          \
  X(ucp_config_read) X(ucp_config_modify) X(ucp_config_release)                        \
  X(ucp_init_version) X(ucp_cleanup)                                                   \
  X(ucp_worker_create) X(ucp_worker_destroy)                                           \
  X(ucp_worker_get_address) X(ucp_worker_release_address)                              \
  X(ucp_worker_progress) X(ucp_worker_arm) X(ucp_worker_get_efd)                       \
  X(ucp_worker_set_am_recv_handler) X(ucp_worker_flush_nbx)                            \
  X(ucp_am_send_nbx) X(ucp_am_recv_data_nbx) X(ucp_am_data_release)                    \
  X(ucp_ep_create) X(ucp_ep_close_nbx)                                                 \
  X(ucp_request_check_status) X(ucp_request_free)                                      \
  X(ucs_status_string)
// clang-format on

// Each function has UCX's name.
struct Library {
#define DRUN_UCX_MEMBER(name) decltype(&::name) name = nullptr;
  DRUN_UCX_FUNCTIONS(DRUN_UCX_MEMBER)
#undef DRUN_UCX_MEMBER

  // Null: this library must not change UCX's log, or cannot.
  decltype(&::ucs_global_opts_set_value) set_log_option = nullptr;

  static const Library& get();
};

constexpr char kName[] = "libucp.so.0";

[[noreturn]] void refuse(const std::string& reason) {
  throw BackendFailure(WorkerError::Kind::Unsupported, std::nullopt,
                       std::string("cannot load ") + kName + ": " + reason +
                           "; install UCX 1.13 or later (Debian's libucx0), or choose tcp or "
                           "shm+tcp");
}

Library load() {
  Library library;
  const bool is_used_otherwise = dlopen("libucs.so.0", RTLD_NOW | RTLD_NOLOAD) != nullptr;
  // Never closed, because UCX starts threads.
  void* const loaded = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    const char* const reason = dlerror();
    refuse(reason != nullptr ? reason : "no reason given");
  }
#define DRUN_UCX_FIND(name)                   \
  find_function(loaded, #name, library.name); \
  if (library.name == nullptr) refuse("it has no " #name);
  DRUN_UCX_FUNCTIONS(DRUN_UCX_FIND)
#undef DRUN_UCX_FIND
  // The log is one for the whole process: the user's choice stays, and that of a program that uses
  // UCX itself.
  if (getenv("UCX_LOG_LEVEL") == nullptr && !is_used_otherwise)
    find_function(loaded, "ucs_global_opts_set_value", library.set_log_option);
  return library;
}

const Library& Library::get() {
  static const Library library = load();
  return library;
}

// Throws BackendFailure (System): "UCX cannot WHAT: UCX's text".
void check(ucs_status_t status, const char* what) {
  if (status == UCS_OK) return;
  throw BackendFailure(
      WorkerError::Kind::System, std::nullopt,
      std::string("UCX cannot ") + what + ": " + Library::get().ucs_status_string(status));
}

// UCX's view of this machine: one for all groups of this process, as long as any exists.
std::shared_ptr<ucp_context> context_of_process() {
  static std::mutex mutex;
  static std::weak_ptr<ucp_context> current;
  const Library& library = Library::get();
  const std::lock_guard lock(mutex);
  if (std::shared_ptr<ucp_context> context = current.lock()) return context;

  const SignalsBlocked blocked;  // inherited by UCX's threads
  ucp_config_t* config = nullptr;
  check(library.ucp_config_read(nullptr, nullptr, &config), "read its variables, UCX_*");
  // Shared memory is shm's task (shm+ucx), which notices the end of a rank at once.
  if (getenv("UCX_TLS") == nullptr) library.ucp_config_modify(config, "TLS", "^shm");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  ucp_context_h made = nullptr;
  const ucs_status_t status =
      library.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &made);
  library.ucp_config_release(config);
  check(status, "find a network");
  // From here on this library reports what fails. Until here, UCX's log has the details.
  if (library.set_log_option != nullptr) library.set_log_option("LOG_LEVEL", "fatal");
  std::shared_ptr<ucp_context> context(made, library.ucp_cleanup);
  current = context;
  return context;
}

// --- The messages of one rank: its worker (UCX's word for the state of one rank), the connections
// to the other ranks, and the matching of messages with receives

constexpr unsigned kMessage = 1;  // the number of drun's active messages
// What an ended rank had sent before arrives within this time.
constexpr milliseconds kLastWords{500};
// For everything that was sent to leave this host: when the group ends, and when it is aborted.
constexpr milliseconds kFlushTime{10'000};
constexpr milliseconds kStopTime{100};
// So that a stream of messages does not keep other threads from the mesh.
constexpr int kMostSteps = 64;

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

template <typename Message>
void end(Message& message, void* request, ucs_status_t status) {
  message.status = status;
  message.is_done = status == UCS_OK;
  if constexpr (std::is_same_v<Message, Receive>) message.is_read = false;
  if (request != nullptr) Library::get().ucp_request_free(request);
}
// `request`: what UCX returned for the message; null if it is done.
template <typename Message>
void end_if_done(Message& message, void* request) {
  if (request == nullptr) return end(message, nullptr, UCS_OK);
  if (UCS_PTR_IS_ERR(request)) end(message, nullptr, UCS_PTR_STATUS(request));
}
// Lets UCX call end() for the message.
ucp_request_param_t with_callback(Send& send) {
  ucp_request_param_t how{};
  how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  how.cb.send = [](void* request, ucs_status_t status, void* self) {
    end(*static_cast<Send*>(self), request, status);
  };
  how.user_data = &send;
  return how;
}
ucp_request_param_t with_callback(Receive& receive) {
  ucp_request_param_t how{};
  how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  how.cb.recv_am = [](void* request, ucs_status_t status, std::size_t, void* self) {
    end(*static_cast<Receive*>(self), request, status);
  };
  how.user_data = &receive;
  return how;
}

// Ends:    UCX reports some broken connections, depending on the transport. It cannot cancel a
//          message: giving one up that UCX has ends all connections.
// Owner:   the mesh. Keeps pointers to Sends and Receives from start() until they are done or given
//          up.
// Thread:  one at a time.
class Messages {
 public:
  Messages(int rank, int size) : rank_(rank), peers_(static_cast<std::size_t>(size)) {
    make_worker();
  }
  // Waits until what was sent has left this host.
  ~Messages() { shut(kFlushTime); }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

  std::string own_address() {
    ucp_address_t* address = nullptr;
    std::size_t bytes = 0;
    ucx::check(ucx_.ucp_worker_get_address(worker_, &address, &bytes), "find its addresses");
    const std::string text(reinterpret_cast<const char*>(address), bytes);
    ucx_.ucp_worker_release_address(worker_, address);
    return text;
  }

  // Of all ranks. Call it before start().
  void set_addresses(const std::vector<std::string>& addresses) {
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) peers_[rank].address = addresses[rank];
  }

  void start(Send& send) {
    check_alive();
    Peer& to = connected(send.to);
    if (to.endpoint == nullptr) throw to.end.failure(send.to);
    send.header = {
        .slot = send.slot, .number = to.next_out++, .from = static_cast<std::uint64_t>(rank_)};
    const ucp_request_param_t how = with_callback(send);
    end_if_done(send, ucx_.ucp_am_send_nbx(to.endpoint, kMessage, &send.header, sizeof send.header,
                                           send.data, send.size_bytes, &how));
  }

  void start(Receive& receive) {
    check_alive();
    if (receive.from) connected(*receive.from);
    if (const std::shared_ptr<Arrival> arrival = matcher_.post(&receive)) {
      give(receive, *arrival);
      read_announced();
    }
  }

  // Throw why it will not be done.
  void check(const Send& send) const {
    check_alive();
    if (send.status != UCS_OK || is_over(send.to)) throw loss_of(send.to, send.status);
  }
  void check(const Receive& receive) const {
    receive.check_fit();
    check_alive();
    if (const std::optional<int> rank = receive.peer()) {
      if (receive.status != UCS_OK || is_over(*rank)) throw loss_of(*rank, receive.status);
      return;
    }
    for (int other = 0; other < size(); ++other)
      if (other != rank_ && !is_over(other)) return;
    throw loss_of_all_others();
  }

  // Forget one that is not done.
  void give_up(Send& send) noexcept {
    if (send.status == UCS_OK) shut(kStopTime);
  }
  void give_up(Receive& receive) noexcept {
    std::erase_if(to_read_, [&](const ToRead& each) { return each.receive == &receive; });
    if (!receive.sender) return matcher_.withdraw(&receive);
    if (receive.is_read) shut(kStopTime);
  }

  // Handles what UCX has. True if there was something.
  bool make_progress() {
    if (worker_ == nullptr) return false;
    int steps = 0;
    while (steps < kMostSteps && ucx_.ucp_worker_progress(worker_) != 0) ++steps;
    read_announced();
    return steps > 0;
  }
  // Prepares fd() to become readable for the next event. False: there is one already.
  bool arm() { return ucx_.ucp_worker_arm(worker_) == UCS_OK; }
  int fd() const { return events_; }
  // When the next rank counts as ended; at most `latest`.
  Deadline next_due(Deadline latest) const {
    const Deadline now = Deadline::clock::now();
    for (const Peer& each : peers_)
      if (each.over_at && *each.over_at > now) latest = std::min(latest, *each.over_at);
    return latest;
  }

  void abort() noexcept { shut(kStopTime); }
  void tell_lost(int rank, bool is_end) noexcept {
    lose(peer(rank), "the network to it has failed");
    peer(rank).end.is_told = is_end;
  }
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

  void make_worker() {
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    ucx::check(ucx_.ucp_worker_create(context_.get(), &params, &worker_), "start");
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kMessage;
    handler.arg = this;
    handler.cb = [](void* self, const void* header, std::size_t header_bytes, void* data,
                    std::size_t bytes, const ucp_am_recv_param_t* how) {
      return static_cast<Messages*>(self)->take(header, header_bytes, data, bytes, how->recv_attr);
    };
    ucx::check(ucx_.ucp_worker_set_am_recv_handler(worker_, &handler), "receive messages");
    ucx::check(ucx_.ucp_worker_get_efd(worker_, &events_), "wait for messages");
  }

  // Its endpoint is null if the rank cannot be reached; what it has sent before can still arrive.
  Peer& connected(int rank) {
    Peer& other = peer(rank);
    if (other.endpoint != nullptr || other.over_at) return other;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(other.address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = [](void* lost, ucp_ep_h, ucs_status_t status) {
      lose(*static_cast<Peer*>(lost), Library::get().ucs_status_string(status));
    };
    params.err_handler.arg = &other;
    const ucs_status_t status = ucx_.ucp_ep_create(worker_, &params, &other.endpoint);
    if (status != UCS_OK) lose(other, ucx_.ucs_status_string(status));
    return other;
  }

  // Ends all connections; nothing is read or written afterwards. Waits up to this time until what
  // was sent has left.
  void shut(milliseconds most) noexcept {
    if (worker_ == nullptr) return;
    for (void* announced : announced_) ucx_.ucp_am_data_release(worker_, announced);
    announced_.clear();
    ucp_request_param_t how{};
    std::vector<void*> requests{ucx_.ucp_worker_flush_nbx(worker_, &how)};
    wait_for(requests, most);
    how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    how.flags = UCP_EP_CLOSE_FLAG_FORCE;
    for (Peer& each : peers_) {
      if (each.endpoint == nullptr) continue;
      requests.push_back(ucx_.ucp_ep_close_nbx(std::exchange(each.endpoint, nullptr), &how));
    }
    wait_for(requests, kStopTime);
    ucx_.ucp_worker_destroy(std::exchange(worker_, nullptr));
  }

  // Frees and removes those that are done.
  void wait_for(std::vector<void*>& requests, milliseconds most) {
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

  // UCX calls it while it makes progress. UCS_INPROGRESS keeps the descriptor of announced data.
  ucs_status_t take(const void* bytes, std::size_t header_bytes, void* data, std::size_t size_bytes,
                    std::uint64_t attributes) noexcept {
    const bool is_announced = (attributes & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    try {
      Header header;
      if (header_bytes != sizeof header)
        return break_off("a message without drun's header"), UCS_OK;
      std::memcpy(&header, bytes, sizeof header);
      if (header.from >= peers_.size()) return break_off("a message from an unknown rank"), UCS_OK;
      Peer& from = peers_[header.from];
      if (header.number == from.next_in && !is_announced &&
          take_now(header, static_cast<const char*>(data), size_bytes))
        return UCS_OK;
      const auto arrival = std::make_shared<Arrival>();
      arrival->from = static_cast<int>(header.from);
      arrival->slot = header.slot;
      arrival->size_bytes = size_bytes;
      if (is_announced) {
        arrival->announced = data;
        announced_.insert(data);
      } else if (size_bytes > 0) {
        arrival->data = std::make_unique_for_overwrite<char[]>(size_bytes);
        std::memcpy(arrival->data.get(), data, size_bytes);
      }
      if (header.number < from.next_in || from.early.size() >= kMostKept ||
          !from.early.emplace(header.number, arrival).second)
        break_off("a message out of order");
      take_early(from);
    } catch (const std::exception& error) {
      break_off(error.what());
    }
    return is_announced ? UCS_INPROGRESS : UCS_OK;
  }

  // The usual case: the next message, with its data, whose receive is waiting.
  bool take_now(const Header& header, const char* data, std::size_t size_bytes) {
    Receive* const receive = matcher_.meet(static_cast<int>(header.from), header.slot);
    if (receive == nullptr) return false;
    Peer& from = peers_[header.from];
    ++from.next_in;
    if (receive->accept(static_cast<int>(header.from), size_bytes)) {
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
        break_off("more than " + std::to_string(kMostKept) + " messages without a receive");
      }
    }
  }

  void give(Receive& receive, const Arrival& arrival) {
    if (!receive.accept(arrival.from, arrival.size_bytes)) return;
    if (arrival.announced != nullptr) {
      to_read_.push_back({&receive, arrival.announced});
      return;
    }
    if (arrival.data) std::memcpy(receive.data, arrival.data.get(), arrival.size_bytes);
    receive.is_done = true;
  }

  // Not inside take(): UCX holds the descriptor until that has returned.
  void read_announced() {
    for (const auto& [receive, descriptor] : std::exchange(to_read_, {})) {
      const ucp_request_param_t how = with_callback(*receive);
      receive->is_read = true;
      announced_.erase(descriptor);
      end_if_done(*receive, ucx_.ucp_am_recv_data_nbx(worker_, descriptor, receive->data,
                                                      receive->size_bytes, &how));
    }
  }

  void break_off(const std::string& why) {
    if (!failure_) failure_ = BackendFailure(Kind::System, std::nullopt, "UCX delivered " + why);
  }

  void check_alive() const {
    if (failure_) throw *failure_;
    if (worker_ == nullptr) throw aborted_failure();
  }
  bool is_over(int rank) const {
    return peer(rank).over_at && Deadline::clock::now() >= *peer(rank).over_at;
  }
  static void lose(Peer& peer, const char* why) {
    if (peer.over_at) return;
    peer.over_at = deadline_in(kLastWords);
    peer.end.why = why;
  }
  // `status`: of the message.
  BackendFailure loss_of(int rank, ucs_status_t status) const {
    PeerEnd end = peer(rank).end;
    if (status != UCS_OK) end.why = ucx_.ucs_status_string(status);
    return end.failure(rank);
  }

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

// --- The mesh

// How long a waiting thread polls before it sleeps.
constexpr microseconds kPollTime{250};
// UCX's own thread can put off an event to the next progress, without a sign to a thread that
// sleeps.
constexpr milliseconds kMostSleep{10};
// For a thread of UCX that has something to do and needs a core for it.
constexpr microseconds kPause{50};

// Locks:   one mutex protects everything, UCX's worker too. A thread that sleeps has released it.
class UcxMesh final : public DrivenMesh<UcxMesh, Send, Receive> {
 public:
  explicit UcxMesh(const BackendContext& context)
      : has_core_(has_own_core(context)),
        wake_flag_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        messages_(context.rank, context.size) {
    if (!wake_flag_)
      throw BackendFailure(WorkerError::Kind::System, "UCX: cannot wait: " + error_text(errno));
    messages_.set_addresses(gather_texts(context, "ucx", messages_.own_address()));
    if (context.is_lookout) lookout_ = make_tcp_mesh(context);
  }

  std::string name() const override { return "ucx"; }
  int rank() const override { return messages_.rank(); }
  int size() const override { return messages_.size(); }

  void abort() noexcept override {
    {
      const Lock lock(mutex_);
      messages_.abort();
      wake_all();
    }
    if (lookout_) lookout_->abort();
  }
  std::vector<Lifeline> lifelines() const override {
    return lookout_ ? lookout_->lifelines() : std::vector<Lifeline>();
  }
  bool tell_lost(int rank) noexcept override {
    if (rank < 0 || rank >= size()) return true;
    const bool is_end = !lookout_ || lookout_->tell_lost(rank);
    const Lock lock(mutex_);
    messages_.tell_lost(rank, is_end);
    wake_all();
    return is_end;
  }

  // --- As in DrivenMesh

  template <typename Message>
  void start(Message& message) {
    messages_.start(message);
    if (is_asleep_) wake();  // that thread makes progress for it
  }
  template <typename Message>
  void check(const Message& message) const {
    messages_.check(message);
  }
  template <typename Message>
  void give_up(Message& message) noexcept {
    messages_.give_up(message);
    if (messages_.has_ended()) wake_all();
  }
  bool look(Lock&) {
    const bool has_moved = messages_.make_progress();
    if (has_moved && (is_asleep_ || waiting_ > 0)) wake_all();
    return has_moved;
  }
  template <typename IsOver>
  bool drive(Lock& lock, std::optional<int>, IsOver&& is_over, Deadline deadline) {
    const Deadline began = Deadline::clock::now();
    bool is_woken = false;  // by UCX
    while (true) {
      const bool has_moved = look(lock);
      if (is_over()) return true;
      const Deadline now = Deadline::clock::now();
      if (now >= deadline) return false;
      if (now - began < kPollTime) {
        unlocked(lock, [&] {
          if (!has_core_) sched_yield();
        });
      } else if (is_woken && !has_moved) {
        unlocked(lock, [] { std::this_thread::sleep_for(kPause); });
        is_woken = false;
      } else {
        is_woken = sleep(lock, deadline);
      }
    }
  }
  BackendFailure lateness_of(std::optional<int> peer) const { return lateness_of_peer(peer); }

 private:
  template <typename Action>
  static void unlocked(Lock& lock, Action&& action) {
    lock.unlock();
    action();
    lock.lock();
  }
  // Until UCX has something to do, another thread wakes this one, or the time is over. True if it
  // is UCX.
  bool sleep(Lock& lock, Deadline deadline) {
    const Deadline until =
        messages_.next_due(std::min(deadline, Deadline::clock::now() + kMostSleep));
    if (is_asleep_) {
      ++waiting_;
      changed_.wait_until(lock, until);
      --waiting_;
      return false;
    }
    if (!messages_.arm()) return true;
    pollfd descriptors[] = {{.fd = messages_.fd(), .events = POLLIN, .revents = 0},
                            {.fd = wake_flag_.get(), .events = POLLIN, .revents = 0}};
    is_asleep_ = true;
    unlocked(lock, [&] {
      ::poll(descriptors, 2, static_cast<int>(left_until(until).count()));
      std::uint64_t count = 0;
      static_cast<void>(::read(wake_flag_.get(), &count, sizeof count) < 0);
    });
    is_asleep_ = false;
    changed_.notify_all();  // one of them sleeps in poll() now
    return descriptors[0].revents != 0;
  }
  // The thread in poll().
  void wake() const noexcept {
    const std::uint64_t one = 1;
    static_cast<void>(::write(wake_flag_.get(), &one, sizeof one) < 0);
  }
  void wake_all() noexcept {
    if (is_asleep_) wake();
    changed_.notify_all();
  }

  const bool has_core_;
  const UniqueFd wake_flag_;

  // Protected by the mutex:
  std::condition_variable changed_;
  bool is_asleep_ = false;         // a thread is in poll()
  int waiting_ = 0;                // further ones
  std::unique_ptr<Mesh> lookout_;  // null: not asked for; ends after the last message has left
  Messages messages_;
};

}  // namespace
}  // namespace ucx

bool has_ucx() { return true; }

std::unique_ptr<Backend> connect_ucx(const BackendContext& context) {
  return make_mesh_backend(std::make_unique<ucx::UcxMesh>(context), context.is_debug);
}

}  // namespace drun::worker

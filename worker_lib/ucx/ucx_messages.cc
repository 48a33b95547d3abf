#include "worker_lib/ucx/ucx_messages.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "worker_lib/base/deadline.h"

namespace drun::worker::ucx {
namespace {

using Kind = WorkerError::Kind;
using std::chrono::milliseconds;

constexpr unsigned kMessage = 1;  // the number of drun's active messages
// What an ended rank had sent before arrives within this time.
constexpr milliseconds kLastWords{500};
// For everything that was sent to leave this host: when the group ends, and when it is aborted.
constexpr milliseconds kFlushTime{10'000};
constexpr milliseconds kStopTime{100};
// So that a stream of messages does not keep other threads from the mesh.
constexpr int kMostSteps = 64;

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

}  // namespace

Messages::Messages(int rank, int size) : rank_(rank), peers_(static_cast<std::size_t>(size)) {
  make_worker();
}
Messages::~Messages() { shut(kFlushTime); }

// --- The worker and its connections

void Messages::make_worker() {
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

std::string Messages::own_address() {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  ucx::check(ucx_.ucp_worker_get_address(worker_, &address, &bytes), "find its addresses");
  const std::string text(reinterpret_cast<const char*>(address), bytes);
  ucx_.ucp_worker_release_address(worker_, address);
  return text;
}

void Messages::set_addresses(const std::vector<std::string>& addresses) {
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) peers_[rank].address = addresses[rank];
}

// Its endpoint is null if the rank cannot be reached; what it has sent before can still arrive.
Messages::Peer& Messages::connected(int rank) {
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

// Ends all connections; nothing is read or written afterwards. Waits up to this time until what was
// sent has left.
void Messages::shut(milliseconds most) noexcept {
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
void Messages::wait_for(std::vector<void*>& requests, milliseconds most) {
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

bool Messages::make_progress() {
  if (worker_ == nullptr) return false;
  int steps = 0;
  while (steps < kMostSteps && ucx_.ucp_worker_progress(worker_) != 0) ++steps;
  read_announced();
  return steps > 0;
}

bool Messages::arm() { return ucx_.ucp_worker_arm(worker_) == UCS_OK; }

// --- The program's messages

void Messages::start(Send& send) {
  check_alive();
  Peer& to = connected(send.to);
  if (to.endpoint == nullptr) throw to.end.failure(send.to);
  send.header = {
      .slot = send.slot, .number = to.next_out++, .from = static_cast<std::uint64_t>(rank_)};
  const ucp_request_param_t how = with_callback(send);
  end_if_done(send, ucx_.ucp_am_send_nbx(to.endpoint, kMessage, &send.header, sizeof send.header,
                                         send.data, send.size_bytes, &how));
}

void Messages::start(Receive& receive) {
  check_alive();
  if (receive.from) connected(*receive.from);
  if (const std::shared_ptr<Arrival> arrival = matcher_.post(&receive)) {
    give(receive, *arrival);
    read_announced();
  }
}

void Messages::check(const Send& send) const {
  check_alive();
  if (send.status != UCS_OK || is_over(send.to)) throw loss_of(send.to, send.status);
}

void Messages::check(const Receive& receive) const {
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

void Messages::give_up(Send& send) noexcept {
  if (send.status == UCS_OK) shut(kStopTime);
}

void Messages::give_up(Receive& receive) noexcept {
  std::erase_if(to_read_, [&](const ToRead& each) { return each.receive == &receive; });
  if (!receive.sender) return matcher_.withdraw(&receive);
  if (receive.is_read) shut(kStopTime);
}

// --- What arrives

// UCX calls it while it makes progress. UCS_INPROGRESS keeps the descriptor of announced data.
ucs_status_t Messages::take(const void* bytes, std::size_t header_bytes, void* data,
                            std::size_t size_bytes, std::uint64_t attributes) noexcept {
  const bool is_announced = (attributes & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  try {
    Header header;
    if (header_bytes != sizeof header) return break_off("a message without drun's header"), UCS_OK;
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
bool Messages::take_now(const Header& header, const char* data, std::size_t size_bytes) {
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

void Messages::take_early(Peer& from) {
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

void Messages::give(Receive& receive, const Arrival& arrival) {
  if (!receive.accept(arrival.from, arrival.size_bytes)) return;
  if (arrival.announced != nullptr) {
    to_read_.push_back({&receive, arrival.announced});
    return;
  }
  if (arrival.data) std::memcpy(receive.data, arrival.data.get(), arrival.size_bytes);
  receive.is_done = true;
}

// Not inside take(): UCX holds the descriptor until that has returned.
void Messages::read_announced() {
  for (const auto& [receive, descriptor] : std::exchange(to_read_, {})) {
    const ucp_request_param_t how = with_callback(*receive);
    receive->is_read = true;
    announced_.erase(descriptor);
    end_if_done(*receive, ucx_.ucp_am_recv_data_nbx(worker_, descriptor, receive->data,
                                                    receive->size_bytes, &how));
  }
}

void Messages::break_off(const std::string& why) {
  if (!failure_) failure_ = BackendFailure(Kind::System, std::nullopt, "UCX delivered " + why);
}

// --- Ends

void Messages::abort() noexcept { shut(kStopTime); }

void Messages::tell_lost(int rank, bool is_end) noexcept {
  lose(peer(rank), "the network to it has failed");
  peer(rank).end.is_told = is_end;
}

void Messages::lose(Peer& peer, const char* why) {
  if (peer.over_at) return;
  peer.over_at = deadline_in(kLastWords);
  peer.end.why = why;
}

Deadline Messages::next_due(Deadline latest) const {
  const Deadline now = Deadline::clock::now();
  for (const Peer& each : peers_)
    if (each.over_at && *each.over_at > now) latest = std::min(latest, *each.over_at);
  return latest;
}

void Messages::check_alive() const {
  if (failure_) throw *failure_;
  if (worker_ == nullptr) throw aborted_failure();
}

bool Messages::is_over(int rank) const {
  return peer(rank).over_at && Deadline::clock::now() >= *peer(rank).over_at;
}

// `status`: of the message.
BackendFailure Messages::loss_of(int rank, ucs_status_t status) const {
  PeerEnd end = peer(rank).end;
  if (status != UCS_OK) end.why = ucx_.ucs_status_string(status);
  return end.failure(rank);
}

}  // namespace drun::worker::ucx

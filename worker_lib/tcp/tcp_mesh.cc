#include "worker_lib/tcp/tcp_mesh.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "rendezvous/base/unique_fd.h"
#include "worker_lib/base/deadline.h"
#include "worker_lib/mesh/mesh_backend.h"
#include "worker_lib/shm/cores.h"
#include "worker_lib/tcp/frames.h"
#include "worker_lib/tcp/matcher.h"
#include "worker_lib/tcp/sockets.h"

namespace drun::worker {
namespace tcp {

// A send that has been started.
struct Send {
  int to = 0;
  const char* data = nullptr;
  std::size_t size_bytes = 0;
  std::size_t queued_bytes = 0;           // of what was granted
  std::optional<std::uint64_t> number{};  // it was asked for
  bool is_done = false;
};

// A frame on its way out: a head, and part of a send's memory.
struct Outgoing {
  Head head{};
  const char* data = nullptr;
  std::size_t size_bytes = 0;
  std::size_t done_bytes = 0;  // of both
  Send* send = nullptr;        // whose payload it is
  bool is_last = false;        // of that send
};

// What comes in on one connection.
struct Incoming {
  UniqueFd fd{};
  std::uint32_t id = 0;
  int from = -1;  // not known yet
  std::array<char, kHeadBytes> head{};
  std::size_t head_bytes = 0;
  std::size_t left_bytes = 0;  // of a payload
  // Where it goes; neither: nowhere.
  Receive* receive = nullptr;
  std::shared_ptr<Arrival> arrival{};
};

enum class Road { None, Dialing, Open, Gone };

struct Peer {
  std::optional<Place> place{};
  UniqueFd out{};
  Road road = Road::None;  // of `out`
  bool waits_to_write = false;
  std::deque<Outgoing> queue{};
  std::size_t ahead_bytes = 0;       // of its window
  std::size_t uncredited_bytes = 0;  // that it may have back
  bool has_called = false;           // it has a connection to this rank, or has had one
  bool is_over = false;              // nothing more comes from it
  bool is_told_lost = false;
  std::optional<Deadline> over_at{};
  std::string why{};
  UniqueFd lifeline{};
};

// What was announced and granted: where the parts go.
struct Granted {
  Receive* receive = nullptr;  // null: given up
  std::size_t left_bytes = 0;
};

}  // namespace tcp

namespace {

using namespace tcp;

using Kind = WorkerError::Kind;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// What a process sent before it ended has arrived by then, on a busy machine too: its connections
// end in any order.
constexpr milliseconds kLastWords{50};
// How long a rank looks before it sleeps, which costs what a short message takes: first without
// giving the core away, then giving it to whoever wants it, which may be the other rank.
constexpr microseconds kLook{20};
constexpr microseconds kYield{150};
// Callers that have not said who they are; beyond that the oldest is hung up on.
constexpr std::size_t kMostStrangers = 128;
constexpr std::size_t kReadBytes = std::size_t{128} << 10;
constexpr int kMostEvents = 64;
constexpr int kMostReads = 16;  // of one connection at a time
constexpr std::size_t kMostPieces = 16;

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

bool is_transient(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

enum class Source : std::uint32_t { Bell, Listener, In, Out };

std::uint64_t token_of(Source source, std::uint32_t which = 0) {
  return static_cast<std::uint64_t>(source) << 32 | which;
}

}  // namespace

class TcpMesh::Engine {
 public:
  explicit Engine(const BackendContext& context);

  int rank() const { return rank_; }
  int size() const { return size_; }

  void start(Send& send, Slot slot);
  void start(Receive& receive);
  void wait(Send& send, Deadline deadline);
  int wait(Receive& receive, Deadline deadline);
  void give_up(Send& send) noexcept;
  void give_up(Receive& receive) noexcept;
  void abort() noexcept;
  void tell_lost(int rank) noexcept;
  std::vector<Lifeline> lifelines() const;

 private:
  Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  void find(int rank, Deadline deadline);
  void call(int rank);
  void watch(int fd, std::uint32_t events, std::uint64_t token, bool is_new) const;

  // Out.
  void push(int rank, const Frame& frame);
  void push(int rank, Outgoing frame);
  void push_part(Send& send);
  void flush(int rank);
  bool take_written(int rank, std::size_t bytes);
  void end_out(int rank, const std::string& why);
  void credit(int rank, std::size_t size_bytes);

  // In.
  void take_callers();
  void read(std::uint32_t id);
  bool take(Incoming& in, std::string_view bytes);
  bool take_hello(Incoming& in);
  bool take_frame(Incoming& in);
  bool take_eager(Incoming& in, const Frame& frame);
  bool take_ask(Incoming& in, const Frame& frame);
  bool take_grant(Incoming& in, const Frame& frame);
  bool take_data(Incoming& in, const Frame& frame);
  void end_payload(Incoming& in);
  void end_in(std::uint32_t id, const std::string& why);
  void await_end(int rank);
  void end_over(int rank);

  bool accept(Receive& receive, int from, std::size_t size_bytes) const;
  void grant(Receive& receive, int from, std::uint64_t number);

  // Waiting.
  template <typename IsOver>
  void drive(IsOver&& is_over, Deadline deadline);
  void look(int timeout_ms, std::unique_lock<std::mutex>* asleep);
  void handle(const epoll_event& event);
  void end_late_peers();
  int sleep_ms(Deadline deadline) const;
  void ring() const noexcept;
  void check_alive() const;
  bool is_lost(const Send& send) const;
  bool is_lost(const Receive& receive) const;
  BackendFailure loss_of(std::optional<int> rank) const;

  const int rank_;
  const int size_;
  const std::shared_ptr<KeyStore> store_;
  bool can_look_ = false;
  UniqueFd epoll_;
  UniqueFd bell_;
  Listening listener_;
  Key key_{};

  std::mutex mutex_;  // of all that follows
  std::condition_variable changed_;
  bool is_driven_ = false;
  int waiting_ = 0;
  bool is_aborted_ = false;
  std::vector<Peer> peers_;
  int ending_ = 0;  // of them: over_at
  std::uint32_t next_id_ = 0;
  std::unordered_map<std::uint32_t, Incoming> incoming_;
  std::deque<std::uint32_t> strangers_;
  Matcher matcher_;
  std::uint64_t next_number_ = 0;
  std::unordered_map<std::uint64_t, Send*> asked_;  // null: given up
  std::unordered_map<int, std::unordered_map<std::uint64_t, Granted>> granted_;
  std::vector<char> buffer_ = std::vector<char>(kReadBytes);
};

TcpMesh::Engine::Engine(const BackendContext& context)
    : rank_(context.rank),
      size_(context.size),
      store_(context.store),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      key_(make_key()),
      peers_(static_cast<std::size_t>(context.size)) {
  if (!epoll_ || !bell_)
    throw BackendFailure(Kind::System, std::nullopt,
                         std::string("cannot wait for connections: ") + std::strerror(errno));
  const int own_node = context.node_of[static_cast<std::size_t>(rank_)];
  can_look_ =
      std::count(context.node_of.begin(), context.node_of.end(), own_node) <= shm::usable_cores();
  const std::string address = context.address.empty() ? "127.0.0.1" : context.address;
  listener_ = listen_at(address);
  watch(bell_.get(), EPOLLIN, token_of(Source::Bell), true);
  watch(listener_.fd.get(), EPOLLIN, token_of(Source::Listener), true);
  store_->set("tcp/" + std::to_string(rank_), to_string(Place{address, listener_.port, key_}),
              left_until(context.deadline));
  if (!context.is_lookout) return;
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    find(other, context.deadline);
    call(other);
    peer(other).lifeline = UniqueFd(fcntl(peer(other).out.get(), F_DUPFD_CLOEXEC, 3));
  }
}

void TcpMesh::Engine::watch(int fd, std::uint32_t events, std::uint64_t token, bool is_new) const {
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  epoll_ctl(epoll_.get(), is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event);
}

// Where that rank is reached, from the store; it has been published before the group was complete.
void TcpMesh::Engine::find(int rank, Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (peer(rank).place) return;
  }
  Place place = parse_place(store_->get("tcp/" + std::to_string(rank), left_until(deadline)));
  const std::lock_guard lock(mutex_);
  if (!peer(rank).place) peer(rank).place = std::move(place);
}

// Makes the connection to that rank, unless there is or was one.
void TcpMesh::Engine::call(int rank) {
  Peer& other = peer(rank);
  if (other.road != Road::None || is_aborted_) return;
  try {
    other.out = dial(*other.place);
  } catch (const BackendFailure& failure) {
    return end_out(rank, failure.what());
  }
  other.road = Road::Dialing;
  other.waits_to_write = true;
  Outgoing hello;
  hello.head = encode(Hello{.key = other.place->key,
                            .rank = static_cast<std::uint32_t>(rank_),
                            .size = static_cast<std::uint32_t>(size_)});
  other.queue.push_front(hello);
  watch(other.out.get(), EPOLLIN | EPOLLRDHUP | EPOLLOUT,
        token_of(Source::Out, static_cast<std::uint32_t>(rank)), true);
}

// --- Out ---

void TcpMesh::Engine::push(int rank, const Frame& frame) {
  Outgoing outgoing;
  outgoing.head = encode(frame);
  // Before the parts of large messages that have not begun: they may take long.
  Peer& other = peer(rank);
  call(rank);
  if (other.road == Road::Gone) return;
  auto at = other.queue.begin();
  while (at != other.queue.end() && (at->done_bytes > 0 || at->send == nullptr)) ++at;
  other.queue.insert(at, outgoing);
}

void TcpMesh::Engine::push(int rank, Outgoing frame) {
  call(rank);
  if (peer(rank).road != Road::Gone) peer(rank).queue.push_back(frame);
}

// The next part of what was granted; parts of several messages take turns.
void TcpMesh::Engine::push_part(Send& send) {
  Outgoing part;
  part.size_bytes = std::min(kPartBytes, send.size_bytes - send.queued_bytes);
  part.data = send.data + send.queued_bytes;
  part.send = &send;
  part.head = encode(
      Frame{.kind = Frame::Kind::Data, .number = *send.number, .size_bytes = part.size_bytes});
  send.queued_bytes += part.size_bytes;
  part.is_last = send.queued_bytes == send.size_bytes;
  push(send.to, part);
}

void TcpMesh::Engine::flush(int rank) {
  Peer& other = peer(rank);
  while (other.road == Road::Open && !other.queue.empty()) {
    std::array<iovec, 2 * kMostPieces> pieces{};
    std::size_t count = 0;
    for (const Outgoing& frame : other.queue) {
      if (count + 2 > pieces.size()) break;
      const std::size_t of_head = std::min(frame.done_bytes, kHeadBytes);
      const std::size_t of_data = frame.done_bytes - of_head;
      if (of_head < kHeadBytes)
        pieces[count++] = {const_cast<char*>(frame.head.data()) + of_head, kHeadBytes - of_head};
      if (of_data < frame.size_bytes)
        pieces[count++] = {const_cast<char*>(frame.data) + of_data, frame.size_bytes - of_data};
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t written = sendmsg(other.out.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && !is_transient(errno)) return end_out(rank, std::strerror(errno));
    if (written < 0 || !take_written(rank, static_cast<std::size_t>(written))) break;
  }
  const bool waits = other.road == Road::Open && !other.queue.empty();
  if (other.road != Road::Open || waits == other.waits_to_write) return;
  other.waits_to_write = waits;
  watch(other.out.get(), EPOLLIN | EPOLLRDHUP | (waits ? EPOLLOUT : 0U),
        token_of(Source::Out, static_cast<std::uint32_t>(rank)), false);
}

// False: the last frame was written in part.
bool TcpMesh::Engine::take_written(int rank, std::size_t bytes) {
  Peer& other = peer(rank);
  while (bytes > 0) {
    Outgoing& frame = other.queue.front();
    const std::size_t taken = std::min(bytes, kHeadBytes + frame.size_bytes - frame.done_bytes);
    frame.done_bytes += taken;
    bytes -= taken;
    if (frame.done_bytes < kHeadBytes + frame.size_bytes) return false;
    Send* const send = frame.send;
    const bool is_last = frame.is_last;
    other.queue.pop_front();
    if (send == nullptr) continue;
    if (is_last) {
      send->is_done = true;
      if (send->number) asked_.erase(*send->number);
    } else {
      push_part(*send);
    }
  }
  return true;
}

// What has been sent to that rank and is not there yet may never be.
void TcpMesh::Engine::end_out(int rank, const std::string& why) {
  Peer& other = peer(rank);
  if (other.road == Road::Gone) return;
  other.road = Road::Gone;
  other.out.reset();
  other.queue.clear();
  if (other.why.empty()) other.why = why;
  await_end(rank);
}

// What it sent before is still to be read.
void TcpMesh::Engine::await_end(int rank) {
  Peer& other = peer(rank);
  if (other.is_over || other.over_at) return;
  other.over_at = Deadline::clock::now() + kLastWords;
  ++ending_;
}

// That rank's window has so much more room.
void TcpMesh::Engine::credit(int rank, std::size_t size_bytes) {
  Peer& other = peer(rank);
  other.uncredited_bytes += window_cost(size_bytes);
  if (other.uncredited_bytes < kCreditBytes || !other.place) return;
  push(rank, Frame{.kind = Frame::Kind::Credit, .size_bytes = other.uncredited_bytes});
  other.uncredited_bytes = 0;
  flush(rank);
}

// --- In ---

void TcpMesh::Engine::take_callers() {
  while (UniqueFd fd = accept_from(listener_.fd.get())) {
    const std::uint32_t id = next_id_++;
    watch(fd.get(), EPOLLIN | EPOLLRDHUP, token_of(Source::In, id), true);
    incoming_[id].id = id;
    incoming_[id].fd = std::move(fd);
    strangers_.push_back(id);
    if (strangers_.size() <= kMostStrangers + static_cast<std::size_t>(size_)) continue;
    incoming_.erase(strangers_.front());
    strangers_.pop_front();
  }
}

void TcpMesh::Engine::read(std::uint32_t id) {
  for (int i = 0; i < kMostReads; ++i) {
    const auto found = incoming_.find(id);
    if (found == incoming_.end()) return;
    Incoming& in = found->second;
    // A payload goes where it belongs; what follows it into the buffer.
    std::array<iovec, 2> pieces{};
    std::size_t direct = 0;
    if (in.left_bytes > 0 && in.receive != nullptr) {
      direct = in.left_bytes;
      pieces[0] = {in.receive->data + in.receive->got_bytes, direct};
    }
    pieces[1] = {buffer_.data(), buffer_.size()};
    const ssize_t got = direct > 0 ? readv(in.fd.get(), pieces.data(), 2)
                                   : ::recv(in.fd.get(), buffer_.data(), buffer_.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && is_transient(errno)) return;
    if (got <= 0) return end_in(id, got == 0 ? "it closed the connection" : std::strerror(errno));
    const auto bytes = static_cast<std::size_t>(got);
    const std::size_t taken = std::min(bytes, direct);
    if (taken > 0) {
      in.receive->got_bytes += taken;
      in.left_bytes -= taken;
      if (in.left_bytes == 0) end_payload(in);
    }
    if (!take(in, std::string_view(buffer_.data(), bytes - taken)))
      return end_in(id, "it said what makes no sense");
    if (bytes < direct + buffer_.size() && bytes < kReadBytes) return;
  }
}

// False: to be hung up on.
bool TcpMesh::Engine::take(Incoming& in, std::string_view bytes) {
  while (!bytes.empty()) {
    if (in.left_bytes > 0) {
      const std::size_t taken = std::min(in.left_bytes, bytes.size());
      if (in.receive != nullptr) {
        std::memcpy(in.receive->data + in.receive->got_bytes, bytes.data(), taken);
        in.receive->got_bytes += taken;
      } else if (in.arrival) {
        std::memcpy(in.arrival->data.data() + in.arrival->got_bytes, bytes.data(), taken);
        in.arrival->got_bytes += taken;
      }
      in.left_bytes -= taken;
      bytes.remove_prefix(taken);
      if (in.left_bytes == 0) end_payload(in);
      continue;
    }
    const std::size_t taken = std::min(kHeadBytes - in.head_bytes, bytes.size());
    std::memcpy(in.head.data() + in.head_bytes, bytes.data(), taken);
    in.head_bytes += taken;
    bytes.remove_prefix(taken);
    if (in.head_bytes < kHeadBytes) continue;
    in.head_bytes = 0;
    if (!(in.from < 0 ? take_hello(in) : take_frame(in))) return false;
  }
  return true;
}

bool TcpMesh::Engine::take_hello(Incoming& in) {
  const std::optional<Hello> hello = decode_hello(std::string_view(in.head.data(), in.head.size()));
  if (!hello || hello->key != key_ || hello->size != static_cast<std::uint32_t>(size_) ||
      hello->rank >= hello->size || hello->rank == static_cast<std::uint32_t>(rank_))
    return false;
  Peer& other = peer(static_cast<int>(hello->rank));
  if (std::exchange(other.has_called, true)) return false;
  in.from = static_cast<int>(hello->rank);
  std::erase(strangers_, in.id);
  return true;
}

bool TcpMesh::Engine::take_frame(Incoming& in) {
  const std::optional<Frame> frame = decode_frame(std::string_view(in.head.data(), in.head.size()));
  if (!frame) return false;
  switch (frame->kind) {
    case Frame::Kind::Eager:
      return take_eager(in, *frame);
    case Frame::Kind::Ask:
      return take_ask(in, *frame);
    case Frame::Kind::Grant:
      return take_grant(in, *frame);
    case Frame::Kind::Data:
      return take_data(in, *frame);
    case Frame::Kind::Credit:
      break;
  }
  Peer& other = peer(in.from);
  if (frame->size_bytes > other.ahead_bytes) return false;
  other.ahead_bytes -= frame->size_bytes;
  return true;
}

// Whether that message has room there; else the receive fails, and the message goes nowhere.
bool TcpMesh::Engine::accept(Receive& receive, int from, std::size_t size_bytes) const {
  receive.sender = from;
  receive.size_bytes = size_bytes;
  if (size_bytes <= receive.room_bytes) return true;
  receive.misfit = rank_text(from) + " sends " + std::to_string(size_bytes) +
                   " bytes, this rank has room for " + std::to_string(receive.room_bytes);
  return false;
}

bool TcpMesh::Engine::take_eager(Incoming& in, const Frame& frame) {
  in.left_bytes = frame.size_bytes;
  in.receive = nullptr;
  in.arrival.reset();
  if (Receive* const receive = matcher_.meet(in.from, frame.slot)) {
    credit(in.from, frame.size_bytes);
    if (accept(*receive, in.from, frame.size_bytes)) in.receive = receive;
  } else {
    in.arrival = std::make_shared<Arrival>();
    in.arrival->from = in.from;
    in.arrival->slot = frame.slot;
    in.arrival->size_bytes = frame.size_bytes;
    in.arrival->data.resize(frame.size_bytes);
    if (!matcher_.keep(in.arrival)) return false;
  }
  if (in.left_bytes == 0) end_payload(in);
  return true;
}

bool TcpMesh::Engine::take_ask(Incoming& in, const Frame& frame) {
  if (Receive* const receive = matcher_.meet(in.from, frame.slot)) {
    if (accept(*receive, in.from, frame.size_bytes)) grant(*receive, in.from, frame.number);
    return true;
  }
  const auto arrival = std::make_shared<Arrival>();
  arrival->from = in.from;
  arrival->slot = frame.slot;
  arrival->size_bytes = frame.size_bytes;
  arrival->number = frame.number;
  return matcher_.keep(arrival);
}

void TcpMesh::Engine::grant(Receive& receive, int from, std::uint64_t number) {
  if (receive.size_bytes == 0) {
    receive.is_done = true;
  }
  granted_[from][number] = {&receive, receive.size_bytes};
  push(from, Frame{.kind = Frame::Kind::Grant, .number = number});
  flush(from);
}

bool TcpMesh::Engine::take_grant(Incoming& in, const Frame& frame) {
  const auto found = asked_.find(frame.number);
  if (found == asked_.end()) return false;
  Send* const send = found->second;
  if (send == nullptr) {  // given up; the receiver waits in vain, which it learns from the group
    asked_.erase(found);
    return true;
  }
  if (send->to != in.from || send->queued_bytes > 0) return false;
  push_part(*send);
  flush(send->to);
  return true;
}

bool TcpMesh::Engine::take_data(Incoming& in, const Frame& frame) {
  auto& of_peer = granted_[in.from];
  const auto found = of_peer.find(frame.number);
  if (found == of_peer.end() || frame.size_bytes > found->second.left_bytes) return false;
  found->second.left_bytes -= frame.size_bytes;
  in.left_bytes = frame.size_bytes;
  in.receive = found->second.receive;
  in.arrival.reset();
  if (found->second.left_bytes == 0) of_peer.erase(found);
  if (in.left_bytes == 0) end_payload(in);
  return true;
}

void TcpMesh::Engine::end_payload(Incoming& in) {
  if (in.receive != nullptr && in.receive->got_bytes == in.receive->size_bytes)
    in.receive->is_done = true;
  if (in.arrival && in.arrival->receive != nullptr) {
    Receive& receive = *in.arrival->receive;
    std::memcpy(receive.data, in.arrival->data.data(), in.arrival->size_bytes);
    receive.got_bytes = in.arrival->size_bytes;
    receive.is_done = true;
  }
  in.receive = nullptr;
  in.arrival.reset();
}

void TcpMesh::Engine::end_in(std::uint32_t id, const std::string& why) {
  const int from = incoming_.at(id).from;
  incoming_.erase(id);
  std::erase(strangers_, id);
  if (from < 0) return;
  if (peer(from).why.empty()) peer(from).why = why;
  end_over(from);
}

void TcpMesh::Engine::end_over(int rank) {
  Peer& other = peer(rank);
  other.is_over = true;
  if (std::exchange(other.over_at, std::nullopt)) --ending_;
}

// --- Waiting ---

void TcpMesh::Engine::ring() const noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell_.get(), &one, sizeof one);
}

void TcpMesh::Engine::check_alive() const {
  if (is_aborted_)
    throw BackendFailure(Kind::Broken, std::nullopt, "another operation of this rank has failed");
}

bool TcpMesh::Engine::is_lost(const Send& send) const {
  return peers_[static_cast<std::size_t>(send.to)].road == Road::Gone;
}

bool TcpMesh::Engine::is_lost(const Receive& receive) const {
  const std::optional<int> from = receive.sender ? receive.sender : receive.from;
  if (from) return peers_[static_cast<std::size_t>(*from)].is_over;
  for (int other = 0; other < size_; ++other) {
    if (other != rank_ && !peers_[static_cast<std::size_t>(other)].is_over) return false;
  }
  return true;
}

BackendFailure TcpMesh::Engine::loss_of(std::optional<int> rank) const {
  if (!rank) return {Kind::PeerLost, std::nullopt, "lost the connections to the others"};
  const Peer& other = peers_[static_cast<std::size_t>(*rank)];
  if (other.is_told_lost)
    return {Kind::PeerLost, rank, rank_text(*rank) + " ended before it had done its part", true};
  return {Kind::PeerLost, rank, "lost the connection to " + rank_text(*rank) + ": " + other.why};
}

void TcpMesh::Engine::end_late_peers() {
  for (int other = 0; other < size_ && ending_ > 0; ++other) {
    Peer& late = peer(other);
    if (late.over_at && Deadline::clock::now() >= *late.over_at) end_over(other);
  }
}

// Until the deadline, or a peer's last words are over; rounded up.
int TcpMesh::Engine::sleep_ms(Deadline deadline) const {
  if (ending_ > 0)
    for (const Peer& each : peers_)
      if (each.over_at) deadline = std::min(deadline, *each.over_at);
  const auto left = std::chrono::ceil<milliseconds>(deadline - Deadline::clock::now());
  return static_cast<int>(std::clamp<milliseconds::rep>(left.count(), 0, 60'000));
}

void TcpMesh::Engine::handle(const epoll_event& event) {
  const auto source = static_cast<Source>(event.data.u64 >> 32);
  const auto which = static_cast<std::uint32_t>(event.data.u64);
  switch (source) {
    case Source::Bell: {
      std::uint64_t rings = 0;
      [[maybe_unused]] const ssize_t got = ::read(bell_.get(), &rings, sizeof rings);
      return;
    }
    case Source::Listener:
      return take_callers();
    case Source::In:
      return read(which);
    case Source::Out:
      break;
  }
  const int rank = static_cast<int>(which);
  Peer& other = peer(rank);
  if (other.road == Road::Dialing && (event.events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) {
    if (const int error = error_of(other.out.get())) return end_out(rank, std::strerror(error));
    other.road = Road::Open;
  }
  if (other.road != Road::Open) return;
  // Nothing is ever sent back on it.
  if ((event.events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
    const int error = error_of(other.out.get());
    return end_out(rank, error != 0 ? std::strerror(error) : "it closed the connection");
  }
  flush(rank);
}

// What has happened, without the lock while asleep.
void TcpMesh::Engine::look(int timeout_ms, std::unique_lock<std::mutex>* asleep) {
  std::array<epoll_event, kMostEvents> events{};
  if (asleep != nullptr) asleep->unlock();
  const int count = epoll_wait(epoll_.get(), events.data(), kMostEvents, timeout_ms);
  if (asleep != nullptr) asleep->lock();
  for (int i = 0; i < count && !is_aborted_; ++i) handle(events[static_cast<std::size_t>(i)]);
}

// Works for all messages until is_over() returns or throws something, or the deadline passes.
template <typename IsOver>
void TcpMesh::Engine::drive(IsOver&& is_over, Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (is_over()) return;
  const Deadline began = Deadline::clock::now();
  while (true) {
    if (is_driven_) {
      ++waiting_;
      changed_.wait_until(lock, deadline);
      --waiting_;
    } else {
      is_driven_ = true;
      const auto waited = Deadline::clock::now() - began;
      const bool sleeps = !can_look_ || waited >= kYield;
      look(sleeps ? sleep_ms(deadline) : 0, sleeps ? &lock : nullptr);
      if (!sleeps && waited >= kLook && !is_over()) {
        lock.unlock();
        sched_yield();
        lock.lock();
      }
      is_driven_ = false;
      end_late_peers();
      if (waiting_ > 0) changed_.notify_all();
    }
    if (is_over() || Deadline::clock::now() >= deadline) return;
  }
}

void TcpMesh::Engine::start(Send& send, Slot slot) {
  find(send.to, deadline_in(std::chrono::minutes(5)));
  const std::lock_guard lock(mutex_);
  check_alive();
  call(send.to);
  Peer& other = peer(send.to);
  if (other.road == Road::Gone) throw loss_of(send.to);
  const std::size_t cost = window_cost(send.size_bytes);
  if (send.size_bytes <= kEagerBytes && other.ahead_bytes + cost <= kWindowBytes) {
    other.ahead_bytes += cost;
    Outgoing frame;
    frame.head =
        encode(Frame{.kind = Frame::Kind::Eager, .slot = slot, .size_bytes = send.size_bytes});
    frame.data = send.data;
    frame.size_bytes = send.size_bytes;
    frame.send = &send;
    frame.is_last = true;
    push(send.to, frame);
  } else {
    send.number = next_number_++;
    asked_[*send.number] = &send;
    push(send.to, Frame{.kind = Frame::Kind::Ask,
                        .slot = slot,
                        .number = *send.number,
                        .size_bytes = send.size_bytes});
  }
  flush(send.to);
}

void TcpMesh::Engine::start(Receive& receive) {
  if (receive.from) find(*receive.from, deadline_in(std::chrono::minutes(5)));
  const std::lock_guard lock(mutex_);
  check_alive();
  if (receive.from) call(*receive.from);
  const std::shared_ptr<Arrival> arrival = matcher_.post(receive);
  if (!arrival) return;
  const bool fits = accept(receive, arrival->from, arrival->size_bytes);
  if (arrival->number) {
    if (fits) grant(receive, arrival->from, *arrival->number);
    return;
  }
  credit(arrival->from, arrival->size_bytes);
  if (!fits) return;
  if (arrival->got_bytes < arrival->size_bytes) {
    arrival->receive = &receive;
    return;
  }
  if (arrival->size_bytes > 0) std::memcpy(receive.data, arrival->data.data(), arrival->size_bytes);
  receive.got_bytes = arrival->size_bytes;
  receive.is_done = true;
}

void TcpMesh::Engine::wait(Send& send, Deadline deadline) {
  drive(
      [&] {
        if (send.is_done) return true;
        check_alive();
        if (is_lost(send)) throw loss_of(send.to);
        return false;
      },
      deadline);
  if (!send.is_done)
    throw BackendFailure(Kind::Timeout, send.to,
                         rank_text(send.to) +
                             " did not do its part in time; run with DRUN_DEBUG=1 to learn which "
                             "rank calls something else");
}

int TcpMesh::Engine::wait(Receive& receive, Deadline deadline) {
  drive(
      [&] {
        if (receive.is_done) return true;
        if (!receive.misfit.empty())
          throw BackendFailure(Kind::Mismatch, receive.sender, receive.misfit);
        check_alive();
        if (is_lost(receive)) throw loss_of(receive.sender ? receive.sender : receive.from);
        return false;
      },
      deadline);
  if (receive.is_done) return *receive.sender;
  const std::optional<int> from = receive.sender ? receive.sender : receive.from;
  throw BackendFailure(
      Kind::Timeout, from,
      (from ? rank_text(*from) + " did not do its" : "the others did not do their") +
          std::string(" part in time; run with DRUN_DEBUG=1 to learn which rank "
                      "calls something else"));
}

// A message that is on its way cannot be taken back without the connection.
void TcpMesh::Engine::give_up(Send& send) noexcept {
  const std::lock_guard lock(mutex_);
  if (send.is_done) return;
  if (send.number) {
    const auto found = asked_.find(*send.number);
    if (found != asked_.end()) found->second = nullptr;
  }
  std::deque<Outgoing>& queue = peer(send.to).queue;
  const bool is_cut = std::any_of(queue.begin(), queue.end(), [&send](const Outgoing& frame) {
    return frame.send == &send && frame.done_bytes > 0;
  });
  if (is_cut || send.queued_bytes > 0) return end_out(send.to, "a message was given up halfway");
  std::erase_if(queue, [&send](const Outgoing& frame) { return frame.send == &send; });
}

void TcpMesh::Engine::give_up(Receive& receive) noexcept {
  const std::lock_guard lock(mutex_);
  if (receive.is_done) return;
  if (!receive.sender) return matcher_.withdraw(receive);
  for (auto& [id, in] : incoming_) {
    if (in.receive == &receive) in.receive = nullptr;
    if (in.arrival && in.arrival->receive == &receive) in.arrival->receive = nullptr;
  }
  for (auto& [number, granted] : granted_[*receive.sender])
    if (granted.receive == &receive) granted.receive = nullptr;
}

void TcpMesh::Engine::abort() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_aborted_ = true;
    incoming_.clear();
    listener_.fd.reset();
    for (int other = 0; other < size_; ++other) end_out(other, "this rank has failed");
  }
  ring();
  changed_.notify_all();
}

void TcpMesh::Engine::tell_lost(int rank) noexcept {
  if (rank < 0 || rank >= size_) return;
  {
    const std::lock_guard lock(mutex_);
    Peer& lost = peer(rank);
    lost.is_told_lost = true;
    end_out(rank, "its process has ended");
    await_end(rank);
  }
  ring();
  changed_.notify_all();
}

std::vector<Lifeline> TcpMesh::Engine::lifelines() const {
  std::vector<Lifeline> lines;
  for (int other = 0; other < size_; ++other) {
    const UniqueFd& line = peers_[static_cast<std::size_t>(other)].lifeline;
    if (line) lines.push_back({line.get(), other});
  }
  return lines;
}

// --- Messages ---

class TcpMesh::Sending final : public Message {
 public:
  Sending(Engine& engine, int to, Slot slot, const void* data, std::size_t size_bytes)
      : engine_(engine),
        send_{.to = to, .data = static_cast<const char*>(data), .size_bytes = size_bytes} {
    engine_.start(send_, slot);
  }
  Sending(const Sending&) = delete;
  Sending& operator=(const Sending&) = delete;
  ~Sending() override { engine_.give_up(send_); }
  int wait(Deadline deadline) override {
    engine_.wait(send_, deadline);
    return send_.to;
  }

 private:
  Engine& engine_;
  Send send_;
};

class TcpMesh::Receiving final : public Message {
 public:
  Receiving(Engine& engine, std::optional<int> from, Slot slot, void* data, std::size_t room_bytes)
      : engine_(engine),
        receive_{.from = from,
                 .slot = slot,
                 .data = static_cast<char*>(data),
                 .room_bytes = room_bytes} {
    engine_.start(receive_);
  }
  Receiving(const Receiving&) = delete;
  Receiving& operator=(const Receiving&) = delete;
  ~Receiving() override { engine_.give_up(receive_); }
  int wait(Deadline deadline) override { return engine_.wait(receive_, deadline); }

 private:
  Engine& engine_;
  Receive receive_;
};

TcpMesh::TcpMesh(const BackendContext& context) : engine_(std::make_unique<Engine>(context)) {}
TcpMesh::~TcpMesh() = default;

int TcpMesh::rank() const { return engine_->rank(); }
int TcpMesh::size() const { return engine_->size(); }

Mesh::Started TcpMesh::send(int to, Slot slot, const void* data, std::size_t size_bytes) {
  return std::make_unique<Sending>(*engine_, to, slot, data, size_bytes);
}

Mesh::Started TcpMesh::recv(int from, Slot slot, void* data, std::size_t size_bytes) {
  return std::make_unique<Receiving>(*engine_, from, slot, data, size_bytes);
}

Mesh::Started TcpMesh::recv_any(Slot slot, void* data, std::size_t size_bytes) {
  return std::make_unique<Receiving>(*engine_, std::nullopt, slot, data, size_bytes);
}

void TcpMesh::abort() noexcept { engine_->abort(); }
std::vector<Lifeline> TcpMesh::lifelines() const { return engine_->lifelines(); }
void TcpMesh::tell_lost(int rank) noexcept { engine_->tell_lost(rank); }

std::unique_ptr<Backend> connect_tcp(const BackendContext& context) {
  return make_mesh_backend(std::make_unique<TcpMesh>(context), context.is_debug);
}

}  // namespace drun::worker

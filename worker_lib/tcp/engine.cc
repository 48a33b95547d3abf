#include "worker_lib/tcp/engine.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "worker_lib/base/cores.h"
#include "worker_lib/base/deadline.h"

namespace drun::worker::tcp {
namespace {

using Kind = WorkerError::Kind;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// The two connections of a process that has ended close in any order. Within this time everything
// it had sent has arrived, even on a busy machine.
constexpr milliseconds kLastWords{50};
// How long a rank polls before it sleeps: first without yielding the core, then yielding it. An
// exchange of short messages takes 6 to 20 us, waking a sleeping rank up to 50 us.
constexpr microseconds kLeastSpinTime{2};
constexpr microseconds kMostSpinTime{100};
constexpr microseconds kPollTime{250};
// While it polls, it reads the connection of the rank that it waits for, and checks all others this
// rarely.
constexpr int kPollsPerLook = 8;
constexpr std::size_t kMostStrangers = 128;
// A caller sends its Hello as soon as it is connected.
constexpr std::chrono::seconds kHelloTime{5};
// Until accepting is tried again, if a descriptor or memory was lacking.
constexpr milliseconds kAcceptPause{50};
constexpr int kMostAccepts = 64;  // at a time
constexpr int kMostEvents = 64;
constexpr int kMostReads = 16;  // of one connection at a time

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

bool is_transient(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

template <std::size_t size>
std::string_view text_of(const std::array<char, size>& bytes) {
  return {bytes.data(), size};
}

enum class Source : std::uint32_t { WakeFlag, Listener, In, Out };

std::uint64_t token_of(Source source, std::uint32_t which = 0, std::size_t lane = 0) {
  return static_cast<std::uint64_t>(source) << 32 | static_cast<std::uint64_t>(lane) << 40 | which;
}

}  // namespace

Engine::Engine(const BackendContext& context)
    : rank_(context.rank),
      size_(context.size),
      store_(context.store),
      is_lookout_(context.is_lookout),
      job_key_(JobKey::of_process()),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      peers_(static_cast<std::size_t>(context.size)) {
  if (!epoll_ || !bell_) throw system_failure("cannot wait for connections");
  const int own_node = context.node_of[static_cast<std::size_t>(rank_)];
  const auto neighbors = std::count(context.node_of.begin(), context.node_of.end(), own_node);
  has_core_ = neighbors <= usable_cores(online_cores());
  const std::string address = context.address.empty() ? "127.0.0.1" : context.address;
  listener_ = listen_at(address);
  own_ = {address, listener_.port, make_key(), job_key_.has_value()};
  watch(bell_.get(), EPOLLIN, token_of(Source::WakeFlag), true);
  watch(listener_.fd.get(), EPOLLIN, token_of(Source::Listener), true);
  find_all(context.deadline);
  for (int other = 0; other < size_; ++other)
    if (context.node_of[static_cast<std::size_t>(other)] != own_node)
      peer(other).lane_count = kMostLanes;
  has_lanes_ = neighbors < size_;
  if (is_lookout_) call_all(context.deadline);
}

void Engine::watch(int fd, std::uint32_t events, std::uint64_t token, bool is_new) const {
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  epoll_ctl(epoll_.get(), is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event);
}

void Engine::unwatch(int fd) const { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

// Publishes this rank's place and gets those of all others. Rank 0 collects them, so that each of
// the others needs a single value. No operation uses the store afterwards.
void Engine::find_all(Deadline deadline) {
  const auto key_of = [](int rank) { return "tcp/" + std::to_string(rank); };
  if (rank_ != 0) store_->set(key_of(rank_), to_string(own_), left_until(deadline));
  std::string all = to_string(own_);
  if (rank_ == 0) {
    for (int other = 1; other < size_; ++other)
      all += "\n" + store_->get(key_of(other), left_until(deadline));
    store_->set("tcp/all", all, left_until(deadline));
  } else {
    all = store_->get("tcp/all", left_until(deadline));
  }
  std::string_view left = all;
  for (Peer& each : peers_) {
    const std::size_t end = std::min(left.find('\n'), left.size());
    each.place = parse_place(left.substr(0, end));
    left.remove_prefix(std::min(end + 1, left.size()));
    if (each.place.has_job_key == own_.has_job_key) continue;
    const auto rank = static_cast<int>(&each - peers_.data());
    const std::string has = rank_text(job_key_ ? rank_ : rank);
    throw BackendFailure(Kind::System, rank,
                         has + " has the worker key of a job with a secret, " +
                             rank_text(job_key_ ? rank : rank_) +
                             " has none; start all ranks with one drun, and let wrappers pass on "
                             "DRUN_WORKER_KEY_FILE");
  }
}

// Returns when every connection has been made or refused, and begun with a Hello; with a job key,
// when each rank has answered all others, so that none waits for one that has returned.
void Engine::call_all(Deadline deadline) {
  for (int other = 0; other < size_; ++other)
    if (other != rank_) call(other);
  const auto is_dialing = [this](const Peer& each) {
    const Outbox& out = each.out();
    if (&each == &peers_[static_cast<std::size_t>(rank_)] || out.road() == Outbox::Road::Gone)
      return false;
    return out.road() == Outbox::Road::Dialing || out.is_held() ||
           (job_key_ && !each.has_called[0]);
  };
  const auto are_done = [&] { return std::none_of(peers_.begin(), peers_.end(), is_dialing); };
  if (drive(std::nullopt, are_done, deadline)) return;
  const auto late = std::find_if(peers_.begin(), peers_.end(), is_dialing);
  const auto rank = static_cast<int>(late - peers_.begin());
  throw BackendFailure(Kind::Timeout, rank,
                       "cannot connect to " + rank_text(rank) + " at " + late->place.address +
                           " port " + std::to_string(late->place.port) +
                           ": no answer; check the network between the nodes");
}

// Makes the connection to that rank, unless there is or was one. The first lane is needed; the
// others only add speed.
void Engine::call(int rank, std::size_t lane) {
  Peer& other = peer(rank);
  Lane& made = other.lanes[lane];
  if (made.out.road() != Outbox::Road::None || is_aborted_) return;
  made.hello = {.key = other.place.key,
                .rank = static_cast<std::uint32_t>(rank_),
                .size = static_cast<std::uint32_t>(size_),
                .lane = static_cast<std::uint32_t>(lane)};
  try {
    if (job_key_) made.hello.nonce = make_key();
    made.out.open(dial(other.place), encode(made.hello), job_key_.has_value());
  } catch (const BackendFailure& failure) {
    if (lane > 0) return made.out.close();
    if (failure.kind == Kind::PeerLost) return end_out(rank, failure.what());
    throw;
  }
  made.waits_to_write = true;
  watch(made.out.fd(), EPOLLIN | EPOLLRDHUP | EPOLLOUT,
        token_of(Source::Out, static_cast<std::uint32_t>(rank), lane), true);
  flush(rank, lane);
}

// --- Out ---

void Engine::push_first(int rank, const Frame& frame) {
  try {
    call(rank);
  } catch (const BackendFailure& failure) {
    own_failure_ = failure;
    return;
  }
  Outbox& out = peer(rank).out();
  if (out.road() != Outbox::Road::Gone) out.push_first(frame);
  flush(rank);
}

void Engine::flush(int rank, std::size_t lane) {
  Lane& flushed = peer(rank).lanes[lane];
  if (const std::optional<std::string> why = flushed.out.flush()) return end_lane(rank, lane, *why);
  if (flushed.out.road() != Outbox::Road::Open || flushed.out.has_more() == flushed.waits_to_write)
    return;
  flushed.waits_to_write = flushed.out.has_more();
  watch(flushed.out.fd(), EPOLLIN | EPOLLRDHUP | (flushed.waits_to_write ? EPOLLOUT : 0U),
        token_of(Source::Out, static_cast<std::uint32_t>(rank), lane), false);
}

void Engine::close(Lane& lane) const {
  if (lane.out.fd() >= 0) unwatch(lane.out.fd());
  lane.out.close();
}

// Nothing but the answer to the hello is ever sent back on an outgoing connection.
void Engine::take_answer(int rank, std::size_t lane) {
  Lane& held = peer(rank).lanes[lane];
  std::array<char, kHelloBytes> bytes{};
  const ssize_t got =
      ::recv(held.out.fd(), bytes.data(), bytes.size() - held.answer.size(), MSG_DONTWAIT);
  if (got < 0 && is_transient(errno)) return;
  if (got <= 0)
    return end_lane(rank, lane, got < 0 ? std::strerror(errno) : "it closed the connection");
  held.answer.append(bytes.data(), static_cast<std::size_t>(got));
  if (held.answer.size() < kHelloBytes) return;
  const std::optional<Challenge> challenge = decode_challenge(held.answer);
  const auto proof = [&](Prover prover) {
    return job_key_->prove(proven_text(prover, held.hello, own_.key, challenge->nonce));
  };
  if (!challenge || !is_same(text_of(challenge->proof), text_of(proof(Prover::Called))))
    return end_lane(rank, lane,
                    "it has another worker key than this rank; another program listens there, or "
                    "the ranks were started by different jobs");
  held.out.release(proof(Prover::Caller));
  flush(rank, lane);
}

// An unused connection beside the first one is not missed.
void Engine::end_lane(int rank, std::size_t lane, const std::string& why) {
  Lane& ended = peer(rank).lanes[lane];
  if (lane == 0 || ended.out.has_sent_frames()) return end_out(rank, why);
  ended.out.hand_over(peer(rank).out());
  close(ended);
  ended.out.hang_up();
  flush(rank);
}

// Frames that have not reached that rank may be lost.
void Engine::end_out(int rank, const std::string& why) {
  Peer& other = peer(rank);
  if (other.out().road() == Outbox::Road::Gone) return;
  for (Lane& lane : other.lanes) close(lane);
  if (other.why.empty()) other.why = why;
  await_end(rank);
}

// Its last messages may still be on their way.
void Engine::await_end(int rank) {
  Peer& other = peer(rank);
  if (other.is_over || other.over_at) return;
  other.over_at = Deadline::clock::now() + kLastWords;
  ++ending_;
}

// That rank's window has so much more room.
void Engine::credit(int rank, std::size_t size_bytes) {
  Peer& other = peer(rank);
  other.uncredited_bytes += window_cost(size_bytes);
  if (other.uncredited_bytes < kCreditBytes) return;
  const Frame frame{.kind = Frame::Kind::Credit, .size_bytes = other.uncredited_bytes};
  other.uncredited_bytes = 0;
  push_first(rank, frame);
}

// --- In ---

void Engine::take_callers() {
  for (int i = 0; i < kMostAccepts; ++i) {
    if (strangers_.size() >= kMostStrangers) return pause_accepting(strangers_.front().until);
    UniqueFd fd = accept_from(listener_.fd.get());
    if (!fd && is_local_lack(errno))
      return pause_accepting(Deadline::clock::now() + kAcceptPause, error_text(errno));
    if (!fd) break;
    const std::uint32_t id = next_id_++;
    watch(fd.get(), EPOLLIN | EPOLLRDHUP, token_of(Source::In, id), true);
    incoming_[id].id = id;
    incoming_[id].fd = std::move(fd);
    strangers_.push_back({id, Deadline::clock::now() + kHelloTime});
    read(id);  // its Hello is there, if it has waited in the kernel's queue
  }
  lack_.clear();
  if (!accept_at_) return;
  accept_at_.reset();
  watch(listener_.fd.get(), EPOLLIN, token_of(Source::Listener), false);
}

// A listener that is readable and watched would wake this rank all the time.
void Engine::pause_accepting(Deadline until, std::string lack) {
  lack_ = std::move(lack);
  if (!accept_at_) watch(listener_.fd.get(), 0, token_of(Source::Listener), false);
  accept_at_ = until;
}

void Engine::resume_accepting() {
  const Deadline now = Deadline::clock::now();
  const bool has_room = lack_.empty() && strangers_.size() < kMostStrangers;
  if (!has_room && now < *accept_at_) return;
  while (!strangers_.empty() && strangers_.front().until <= now) {
    const std::uint32_t id = strangers_.front().id;
    read(id);
    if (!strangers_.empty() && strangers_.front().id == id) end_in(id, "");
  }
  take_callers();
}

void Engine::read(std::uint32_t id) {
  for (int i = 0; i < kMostReads; ++i) {
    const auto found = incoming_.find(id);
    if (found == incoming_.end()) return;
    Incoming& in = found->second;
    // A payload is read to its destination, and what follows it into the buffer.
    std::array<iovec, 2> pieces{};
    std::size_t direct = 0;
    if (in.left_bytes > 0 && in.receive != nullptr) {
      direct = in.left_bytes;
      pieces[0] = {in.to, direct};
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
      in.to += taken;
      in.left_bytes -= taken;
      if (in.left_bytes == 0) end_payload(in);
    }
    if (!take(in, std::string_view(buffer_.data(), bytes - taken)))
      return end_in(id, "it said what makes no sense");
    if (bytes < direct + buffer_.size()) return;
  }
}

// False: to be hung up on.
bool Engine::take(Incoming& in, std::string_view bytes) {
  while (!bytes.empty()) {
    if (in.left_bytes > 0) {
      const std::size_t taken = std::min(in.left_bytes, bytes.size());
      if (in.to != nullptr) {
        std::memcpy(in.to, bytes.data(), taken);
        in.to += taken;
      }
      if (in.receive != nullptr) in.receive->got_bytes += taken;
      if (in.arrival) in.arrival->got_bytes += taken;
      in.left_bytes -= taken;
      bytes.remove_prefix(taken);
      if (in.left_bytes == 0) end_payload(in);
      continue;
    }
    const std::size_t head_bytes = in.from >= 0 ? kHeadBytes : in.hello ? kProofBytes : kHelloBytes;
    const std::size_t taken = std::min(head_bytes - in.head_bytes, bytes.size());
    std::memcpy(in.head.data() + in.head_bytes, bytes.data(), taken);
    in.head_bytes += taken;
    bytes.remove_prefix(taken);
    if (in.head_bytes < head_bytes) continue;
    in.head_bytes = 0;
    if (!(in.from < 0 ? take_hello(in) : take_frame(in))) return false;
  }
  return true;
}

bool Engine::take_hello(Incoming& in) {
  if (in.hello) {
    const bool is_right = is_same(std::string_view(in.head.data(), kProofBytes), text_of(in.proof));
    return is_right && admit(in, *in.hello);
  }
  const std::optional<Hello> hello = decode_hello(text_of(in.head));
  if (!hello || !is_same(text_of(hello->key), text_of(own_.key)) ||
      hello->size != static_cast<std::uint32_t>(size_) ||
      hello->rank == static_cast<std::uint32_t>(rank_))
    return false;
  return job_key_ ? challenge(in, *hello) : admit(in, *hello);
}

// The nonce is new for each connection, so that a recorded proof is of no use.
bool Engine::challenge(Incoming& in, const Hello& hello) {
  const Key& callers_key = peer(static_cast<int>(hello.rank)).place.key;
  Challenge asked{.nonce = make_key()};
  const auto proof = [&](Prover prover) {
    return job_key_->prove(proven_text(prover, hello, callers_key, asked.nonce));
  };
  asked.proof = proof(Prover::Called);
  in.proof = proof(Prover::Caller);
  in.hello = hello;
  const HelloBytes bytes = encode(asked);
  // A new connection has room for it.
  return ::send(in.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

bool Engine::admit(Incoming& in, const Hello& hello) {
  Peer& other = peer(static_cast<int>(hello.rank));
  if (std::exchange(other.has_called[hello.lane], true)) return false;
  in.from = static_cast<int>(hello.rank);
  in.lane = hello.lane;
  in.hello.reset();
  ++other.open_count;
  if (hello.lane == 0) other.in_id = in.id;
  std::erase_if(strangers_, [&in](const Stranger& each) { return each.id == in.id; });
  return true;
}

bool Engine::take_frame(Incoming& in) {
  const std::optional<Frame> frame = decode_frame(std::string_view(in.head.data(), kHeadBytes));
  if (!frame) return false;
  in.has_sent_frames = true;
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
bool Engine::accept(Receive& receive, int from, std::size_t size_bytes) const {
  receive.sender = from;
  receive.size_bytes = size_bytes;
  if (size_bytes <= receive.room_bytes) return true;
  receive.misfit = rank_text(from) + " sends " + std::to_string(size_bytes) +
                   " bytes, this rank has room for " + std::to_string(receive.room_bytes);
  return false;
}

bool Engine::take_eager(Incoming& in, const Frame& frame) {
  in.left_bytes = frame.size_bytes;
  in.receive = nullptr;
  in.arrival.reset();
  in.to = nullptr;
  if (Receive* const receive = matcher_.meet(in.from, frame.slot)) {
    credit(in.from, frame.size_bytes);
    if (accept(*receive, in.from, frame.size_bytes)) {
      in.receive = receive;
      in.to = receive->data;
    }
  } else {
    in.arrival = std::make_shared<Arrival>();
    in.arrival->from = in.from;
    in.arrival->slot = frame.slot;
    in.arrival->size_bytes = frame.size_bytes;
    in.arrival->data.resize(frame.size_bytes);
    in.to = in.arrival->data.data();
    Peer& other = peer(in.from);
    other.held_bytes += window_cost(frame.size_bytes);
    if (other.held_bytes > kWindowBytes || !matcher_.keep(in.arrival)) return false;
  }
  if (in.left_bytes == 0) end_payload(in);
  return true;
}

bool Engine::take_ask(Incoming& in, const Frame& frame) {
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

void Engine::grant(Receive& receive, int from, std::uint64_t number) {
  granted_[from][number] = {&receive, receive.size_bytes, receive.size_bytes};
  push_first(from, Frame{.kind = Frame::Kind::Grant, .number = number});
}

bool Engine::take_grant(const Incoming& in, const Frame& frame) {
  const auto found = asked_.find(frame.number);
  if (found == asked_.end()) return false;
  Send* const send = found->second;
  if (send != nullptr && send->to != in.from) return false;
  asked_.erase(found);
  if (send == nullptr) return true;  // canceled: its group informs the receiver
  const std::size_t lanes = lanes_for(*send);
  for (std::size_t i = 0; i < lanes; ++i) {
    Outbox& out = peer(in.from).lanes[i].out;
    if (i > 0) flush(in.from, i);  // it may be connected by now
    const bool is_usable = i > 0 ? out.road() == Outbox::Road::Open && !out.is_held()
                                 : out.road() != Outbox::Road::Gone;
    // A part is in one lane at a time.
    if (!is_usable || (i > 0 && send->queued_bytes == send->size_bytes)) continue;
    out.push_part(*send);
    flush(in.from, i);
  }
  return true;
}

std::size_t Engine::lanes_for(const Send& send) {
  return send.size_bytes < kLeastLaneBytes ? 1 : peer(send.to).lane_count;
}

bool Engine::take_data(Incoming& in, const Frame& frame) {
  auto& of_peer = granted_[in.from];
  const auto found = of_peer.find(frame.number);
  if (found == of_peer.end() || frame.size_bytes > found->second.left_bytes ||
      frame.slot > found->second.size_bytes - frame.size_bytes)
    return false;
  found->second.left_bytes -= frame.size_bytes;
  in.left_bytes = frame.size_bytes;
  in.receive = found->second.receive;
  in.arrival.reset();
  in.to = in.receive != nullptr ? in.receive->data + frame.slot : nullptr;
  if (found->second.left_bytes == 0) of_peer.erase(found);
  if (in.left_bytes == 0) end_payload(in);
  return true;
}

void Engine::end_payload(Incoming& in) {
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
  in.to = nullptr;
}

void Engine::end_in(std::uint32_t id, const std::string& why) {
  const Incoming& in = incoming_.at(id);
  const int from = in.from;
  const bool is_missed = in.lane == 0 || in.has_sent_frames;
  unwatch(in.fd.get());
  incoming_.erase(id);
  std::erase_if(strangers_, [id](const Stranger& each) { return each.id == id; });
  if (from < 0) {
    ++rejected_;
    return;
  }
  if (is_missed && peer(from).why.empty()) peer(from).why = why;
  if (--peer(from).open_count == 0) return end_over(from);
  if (is_missed) await_end(from);
}

void Engine::end_over(int rank) {
  Peer& other = peer(rank);
  other.is_over = true;
  if (std::exchange(other.over_at, std::nullopt)) --ending_;
}

// --- Waiting ---

void Engine::ring() const noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell_.get(), &one, sizeof one);
}

void Engine::check_alive() const {
  if (is_aborted_)
    throw BackendFailure(Kind::Broken, std::nullopt, "another operation of this rank has failed");
  if (own_failure_) throw *own_failure_;
}

// One that waits for a grant needs both directions.
bool Engine::is_lost(const Send& send) const {
  if (send.is_asked && peers_[static_cast<std::size_t>(send.to)].is_over) return true;
  return peers_[static_cast<std::size_t>(send.to)].out().road() == Outbox::Road::Gone;
}

bool Engine::is_lost(const Receive& receive) const {
  if (const std::optional<int> from = peer_of(receive))
    return peers_[static_cast<std::size_t>(*from)].is_over;
  for (int other = 0; other < size_; ++other) {
    if (other != rank_ && !peers_[static_cast<std::size_t>(other)].is_over) return false;
  }
  return true;
}

BackendFailure Engine::loss_of(std::optional<int> rank) const {
  if (!rank) return {Kind::PeerLost, std::nullopt, "lost the connections to the others"};
  const Peer& other = peers_[static_cast<std::size_t>(*rank)];
  if (other.is_told_lost)
    return {Kind::PeerLost, rank, rank_text(*rank) + " ended before it had done its part", true};
  return {Kind::PeerLost, rank, "lost the connection to " + rank_text(*rank) + ": " + other.why};
}

BackendFailure Engine::lateness_of(std::optional<int> rank) const {
  if (!lack_.empty() && (!rank || !peers_[static_cast<std::size_t>(*rank)].has_called[0]))
    return {Kind::System, std::nullopt,
            "cannot accept the connection of " + (rank ? rank_text(*rank) : "another rank") + ": " +
                lack_};
  const std::string rejected = rejected_ == 0 ? ""
                                              : "; " + std::to_string(rejected_) +
                                                    " connections were rejected, which did "
                                                    "not begin as this group's" +
                                                    (job_key_ ? " with its worker key" : "");
  return {Kind::Timeout, rank,
          (rank ? rank_text(*rank) + " did not do its" : "the others did not do their") +
              " part in time; run with DRUN_DEBUG=1 to learn which rank calls something else" +
              rejected};
}

void Engine::end_late_peers() {
  for (int other = 0; other < size_ && ending_ > 0; ++other) {
    Peer& late = peer(other);
    if (late.over_at && Deadline::clock::now() >= *late.over_at) end_over(other);
  }
}

// Until the deadline, a peer's last words are over, or it is time to accept; rounded up.
int Engine::sleep_ms(Deadline deadline) const {
  if (accept_at_) deadline = std::min(deadline, *accept_at_);
  if (ending_ > 0)
    for (const Peer& each : peers_)
      if (each.over_at) deadline = std::min(deadline, *each.over_at);
  const auto left = std::chrono::ceil<milliseconds>(deadline - Deadline::clock::now());
  return static_cast<int>(std::clamp<milliseconds::rep>(left.count(), 0, 60'000));
}

void Engine::handle(const epoll_event& event) {
  const auto source = static_cast<Source>(event.data.u64 >> 32 & 0xFF);
  const auto which = static_cast<std::uint32_t>(event.data.u64);
  switch (source) {
    case Source::WakeFlag: {
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
  const auto lane = static_cast<std::size_t>(event.data.u64 >> 40);
  const Outbox& out = peer(rank).lanes[lane].out;
  if (out.road() == Outbox::Road::Gone) return;
  if (out.is_held() && (event.events & EPOLLIN) != 0) return take_answer(rank, lane);
  if ((event.events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
    const int error = error_of(out.fd());
    return end_lane(rank, lane, error != 0 ? std::strerror(error) : "it closed the connection");
  }
  flush(rank, lane);
}

// Handles all pending events. Sleeps without the lock.
void Engine::look(int timeout_ms, std::unique_lock<std::mutex>& lock) {
  struct Driving {
    explicit Driving(Engine& engine) : engine_(engine) { engine_.is_driven_ = true; }
    Driving(const Driving&) = delete;
    Driving& operator=(const Driving&) = delete;
    ~Driving() {
      engine_.is_driven_ = false;
      if (engine_.waiting_ > 0) engine_.changed_.notify_all();
    }
    Engine& engine_;
  };
  const Driving driving(*this);
  std::array<epoll_event, kMostEvents> events{};
  if (timeout_ms > 0) lock.unlock();
  const int count = epoll_wait(epoll_.get(), events.data(), kMostEvents, timeout_ms);
  if (timeout_ms > 0) lock.lock();
  for (int i = 0; i < count && !is_aborted_; ++i) handle(events[static_cast<std::size_t>(i)]);
  end_late_peers();
  if (accept_at_ && !is_aborted_) resume_accepting();
}

// If another thread has run meanwhile, it was the other rank, which shares this core and should get
// it sooner, or a program that keeps the core for milliseconds and should get it later.
void Engine::yield_core(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  const Deadline began = Deadline::clock::now();
  sched_yield();
  const auto took = Deadline::clock::now() - began;
  lock.lock();
  if (took > 10 * kMostSpinTime) {
    spin_time_ = kMostSpinTime;
  } else if (took > kLeastSpinTime) {
    spin_time_ = std::max(kLeastSpinTime, spin_time_ / 2);
  }
}

// Works for all messages until is_over() returns true or throws, or the deadline has passed: false.
// `peer`: the rank that is waited for; absent: any.
template <typename IsOver>
bool Engine::drive(std::optional<int> peer, IsOver&& is_over, Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (is_over()) return true;
  const Deadline began = Deadline::clock::now();
  int polls = 0;
  for (Deadline now = began; now < deadline && !is_over(); now = Deadline::clock::now()) {
    if (is_driven_) {
      ++waiting_;
      changed_.wait_until(lock, deadline);
      --waiting_;
      continue;
    }
    const bool sleeps = now - began >= kPollTime;
    if (!sleeps && peer && this->peer(*peer).has_called[0] && ++polls % kPollsPerLook != 0) {
      read(this->peer(*peer).in_id);
      if (this->peer(*peer).lanes[0].waits_to_write) flush(*peer);
    } else {
      look(sleeps ? sleep_ms(deadline) : 0, lock);
    }
    if (!sleeps && (!has_core_ || now - began >= spin_time_)) yield_core(lock);
  }
  return is_over();
}

void Engine::start(Send& send) {
  const std::lock_guard lock(mutex_);
  check_alive();
  call(send.to);
  Peer& other = peer(send.to);
  if (other.out().road() == Outbox::Road::Gone) throw loss_of(send.to);
  const std::size_t cost = window_cost(send.size_bytes);
  if (send.size_bytes <= kEagerBytes && other.ahead_bytes + cost <= kWindowBytes) {
    other.ahead_bytes += cost;
    other.out().push_eager(send);
  } else {
    send.number = next_number_++;
    asked_[send.number] = &send;
    other.out().push_ask(send);
    for (std::size_t lane = 1; lane < lanes_for(send); ++lane) call(send.to, lane);
  }
  flush(send.to);
}

void Engine::start(Receive& receive) {
  const std::lock_guard lock(mutex_);
  check_alive();
  if (receive.from) call(*receive.from);
  const std::shared_ptr<Arrival> arrival = matcher_.post(&receive);
  if (!arrival) return;
  const bool fits = accept(receive, arrival->from, arrival->size_bytes);
  if (arrival->number) {
    if (fits) grant(receive, arrival->from, *arrival->number);
    return;
  }
  peer(arrival->from).held_bytes -= window_cost(arrival->size_bytes);
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

void Engine::wait(Send& send, Deadline deadline) {
  const auto is_over = [&] {
    if (send.is_done) return true;
    check_alive();
    if (is_lost(send)) throw loss_of(send.to);
    return false;
  };
  if (drive(send.to, is_over, deadline)) return;
  const std::lock_guard lock(mutex_);
  throw lateness_of(send.to);
}

int Engine::wait(Receive& receive, Deadline deadline) {
  const auto is_over = [&] {
    if (receive.is_done) return true;
    if (!receive.misfit.empty())
      throw BackendFailure(Kind::Mismatch, receive.sender, receive.misfit);
    check_alive();
    if (is_lost(receive)) throw loss_of(peer_of(receive));
    return false;
  };
  if (drive(receive.from, is_over, deadline)) return *receive.sender;
  const std::lock_guard lock(mutex_);
  throw lateness_of(peer_of(receive));
}

template <typename IsOver>
bool Engine::poll(IsOver&& is_over) {
  std::unique_lock lock(mutex_);
  const auto would_end = [&] { return is_aborted_ || own_failure_ || is_over(); };
  if (would_end()) return true;
  if (!is_driven_) look(0, lock);
  return would_end();
}

bool Engine::would_end(const Send& send) {
  return poll([&] { return send.is_done || is_lost(send); });
}
bool Engine::would_end(const Receive& receive) {
  return poll([&] { return receive.is_done || !receive.misfit.empty() || is_lost(receive); });
}

// A message that is on its way cannot be taken back without the connection.
void Engine::give_up(Send& send) noexcept {
  const std::lock_guard lock(mutex_);
  if (send.is_done) return;
  if (send.is_asked) {
    const auto found = asked_.find(send.number);
    if (found != asked_.end()) found->second = nullptr;
  }
  if (!peer(send.to).out().take_back(send)) end_out(send.to, "a message was given up halfway");
}

void Engine::give_up(Receive& receive) noexcept {
  const std::lock_guard lock(mutex_);
  if (receive.is_done) return;
  if (!receive.sender) return matcher_.withdraw(&receive);
  for (auto& [id, in] : incoming_) {
    if (in.receive == &receive) in.receive = nullptr, in.to = nullptr;
    if (in.arrival && in.arrival->receive == &receive) in.arrival->receive = nullptr;
  }
  for (auto& [number, granted] : granted_[*receive.sender])
    if (granted.receive == &receive) granted.receive = nullptr;
}

void Engine::abort() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_aborted_ = true;
    incoming_.clear();
    listener_.fd.reset();
    for (int other = 0; other < size_; ++other) {
      end_out(other, "this rank has failed");
      for (Lane& lane : peer(other).lanes) lane.out.hang_up();
    }
  }
  ring();
  changed_.notify_all();
}

void Engine::tell_lost(int rank) noexcept {
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

std::vector<Lifeline> Engine::lifelines() const {
  std::vector<Lifeline> lines;
  for (int other = 0; is_lookout_ && other < size_; ++other) {
    const int fd = peers_[static_cast<std::size_t>(other)].out().fd();
    if (fd >= 0) lines.push_back({fd, other});
  }
  return lines;
}

}  // namespace drun::worker::tcp

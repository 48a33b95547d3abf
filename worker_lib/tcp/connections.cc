#include "worker_lib/tcp/connections.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "worker_lib/base/deadline.h"
#include "worker_lib/base/process.h"
#include "worker_lib/mesh/gather_texts.h"

namespace drun::worker::tcp {
namespace {

using Kind = WorkerError::Kind;
using std::chrono::milliseconds;

// The two connections of a process that has ended close in any order. If no more bytes arrive for
// this long, all that it had sent has arrived, even on a busy machine.
constexpr milliseconds kLastWords{50};
constexpr std::size_t kMostStrangers = 128;
// A caller sends its Hello as soon as it is connected.
constexpr std::chrono::seconds kHelloTime{5};
// Until accepting is tried again, if a descriptor or memory was lacking.
constexpr milliseconds kAcceptPause{50};
constexpr int kMostAccepts = 64;             // at a time
constexpr int kMostReads = 16;               // of one connection at a time
constexpr milliseconds kInteractiveTime{5};  // until the mode is set again
constexpr Poller::Source kListenerSource{Poller::Source::Kind::Listener};

std::string text_of_end(int error) {
  return error != 0 ? std::strerror(error) : "it closed the connection";
}

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

bool is_transient(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

template <std::size_t size>
std::string_view text_of(const std::array<char, size>& bytes) {
  return {bytes.data(), size};
}

}  // namespace

Connections::Connections(const BackendContext& context, const Poller& poller)
    : rank_(context.rank),
      size_(context.size),
      is_lookout_(context.is_lookout),
      job_key_(JobKey::of_process()),
      poller_(poller),
      peers_(static_cast<std::size_t>(context.size)) {
  const std::string address = context.address.empty() ? "127.0.0.1" : context.address;
  listener_ = listen_at(address);
  own_ = {address, listener_.port, make_key(), job_key_.has_value()};
  poller_.add(listener_.fd.get(), EPOLLIN, kListenerSource);
  exchange_places(context);
  const auto node_of = [&](int rank) { return context.node_of[static_cast<std::size_t>(rank)]; };
  for (int other = 0; other < size_; ++other)
    if (node_of(other) != node_of(rank_)) peer(other).lane_count = kMostLanes;
}

// No operation uses the store afterwards.
void Connections::exchange_places(const BackendContext& context) {
  const std::vector<std::string> places = gather_texts(context, "tcp", to_string(own_));
  for (Peer& each : peers_) {
    each.place = parse_place(places[static_cast<std::size_t>(&each - peers_.data())]);
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

// --- Outgoing connections

Poller::Source Connections::source_of(int rank, std::size_t lane) const {
  return {.kind = Poller::Source::Kind::Out,
          .lane = static_cast<std::uint8_t>(lane),
          .which = static_cast<std::uint32_t>(rank)};
}

void Connections::call_all() {
  for (int other = 0; other < size_; ++other)
    if (other != rank_) call(other);
}

std::optional<int> Connections::unanswered() const {
  for (int other = 0; other < size_; ++other) {
    const Outbox& out = peer(other).lanes[0].out;
    if (other == rank_ || is_gone(other)) continue;
    if (out.state() == Outbox::State::Dialing || out.is_held() ||
        (job_key_ && !peer(other).has_called[0]))
      return other;
  }
  return std::nullopt;
}

void Connections::call(int rank, std::size_t lane) {
  Peer& other = peer(rank);
  Lane& made = other.lanes[lane];
  if (made.out.state() != Outbox::State::None || is_aborted_) return;
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
  poller_.add(made.out.fd(), EPOLLIN | EPOLLRDHUP | EPOLLOUT, source_of(rank, lane));
  flush(rank, lane);
}

bool Connections::is_usable(int rank, std::size_t lane) {
  if (lane == 0) return !is_gone(rank);
  flush(rank, lane);  // it may be connected by now
  const Outbox& one = out(rank, lane);
  return one.state() == Outbox::State::Open && !one.is_held();
}

void Connections::call_back(int rank) noexcept {
  try {
    call(rank);
  } catch (const BackendFailure& failure) {
    own_failure_ = failure;
  }
}

void Connections::push_first(int rank, const Frame& frame) {
  call_back(rank);
  if (own_failure_) return;
  if (!is_gone(rank)) out(rank).push_first(frame);
  flush(rank);
}

void Connections::flush(int rank, std::size_t lane) {
  Lane& flushed = peer(rank).lanes[lane];
  has_changed_ = has_changed_ || flushed.waits_to_write;
  if (const int error = flushed.out.flush()) return end_lane(rank, lane, error);
  if (flushed.out.state() != Outbox::State::Open ||
      flushed.out.has_more() == flushed.waits_to_write)
    return;
  flushed.waits_to_write = flushed.out.has_more();
  poller_.change(flushed.out.fd(), EPOLLIN | EPOLLRDHUP | (flushed.waits_to_write ? EPOLLOUT : 0U),
                 source_of(rank, lane));
}

void Connections::close(Lane& lane) const {
  if (lane.out.fd() >= 0) poller_.remove(lane.out.fd());
  lane.out.close();
}

// Nothing but the answer to the hello is ever sent back on an outgoing connection.
void Connections::take_answer(int rank, std::size_t lane) {
  Lane& held = peer(rank).lanes[lane];
  std::array<char, kHelloBytes> bytes{};
  const ssize_t got =
      ::recv(held.out.fd(), bytes.data(), bytes.size() - held.answer.size(), MSG_DONTWAIT);
  if (got < 0 && is_transient(errno)) return;
  if (got <= 0) return end_lane(rank, lane, got < 0 ? errno : 0);
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

void Connections::note(int rank, int error) {
  peer(rank).end.is_of_network = peer(rank).end.is_of_network || is_network_error(error);
}

void Connections::end_lane(int rank, std::size_t lane, int error) {
  note(rank, error);
  end_lane(rank, lane, text_of_end(error));
}

// An unused connection beside the first one is not missed.
void Connections::end_lane(int rank, std::size_t lane, const std::string& why) {
  Lane& ended = peer(rank).lanes[lane];
  if (lane == 0 || ended.out.has_sent_frames()) return end_out(rank, why);
  ended.out.hand_over(out(rank));
  close(ended);
  ended.out.hang_up();
  flush(rank);
}

void Connections::end_out(int rank, const std::string& why) {
  Peer& other = peer(rank);
  if (is_gone(rank)) return;
  for (Lane& lane : other.lanes) close(lane);
  if (other.end.why.empty()) other.end.why = why;
  await_end(rank);
}

// --- Incoming connections

void Connections::take_callers() {
  for (int i = 0; i < kMostAccepts; ++i) {
    if (strangers_.size() >= kMostStrangers) return pause_accepting(strangers_.front().until);
    UniqueFd fd = accept_from(listener_.fd.get());
    if (!fd && is_local_lack(errno))
      return pause_accepting(Deadline::clock::now() + kAcceptPause, error_text(errno));
    if (!fd) break;
    const std::uint32_t id = next_id_++;
    try {
      poller_.add(fd.get(), EPOLLIN | EPOLLRDHUP, {.kind = Poller::Source::Kind::In, .which = id});
    } catch (const BackendFailure& failure) {
      own_failure_ = failure;
      return;
    }
    incoming_[id].id = id;
    incoming_[id].fd = std::move(fd);
    strangers_.push_back({id, Deadline::clock::now() + kHelloTime});
    read(id);  // its Hello is there, if it has waited in the kernel's queue
  }
  lack_.clear();
  if (!accept_at_) return;
  accept_at_.reset();
  poller_.change(listener_.fd.get(), EPOLLIN, kListenerSource);
}

// A listener that is readable and watched would wake this rank all the time.
void Connections::pause_accepting(Deadline until, std::string lack) {
  lack_ = std::move(lack);
  if (!accept_at_) poller_.change(listener_.fd.get(), 0, kListenerSource);
  accept_at_ = until;
}

void Connections::resume_accepting() {
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

void Connections::read(std::uint32_t id) {
  for (int i = 0; i < kMostReads; ++i) {
    const auto found = incoming_.find(id);
    if (found == incoming_.end()) return;
    Incoming& in = found->second;
    // A payload is read to its destination, and what follows it into the buffer.
    std::array<iovec, 2> pieces{};
    std::size_t direct = 0;
    if (in.payload.to != nullptr) {
      direct = in.payload.left_bytes;
      pieces[0] = {in.payload.to, direct};
    }
    pieces[1] = {buffer_.data(), buffer_.size()};
    const ssize_t got = direct > 0 ? readv(in.fd.get(), pieces.data(), 2)
                                   : ::recv(in.fd.get(), buffer_.data(), buffer_.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && is_transient(errno)) return;
    if (got <= 0) {
      const int error = got == 0 ? 0 : errno;
      if (in.from >= 0) note(in.from, error);
      return end_in(id, text_of_end(error));
    }
    const auto bytes = static_cast<std::size_t>(got);
    keep_interactive(in);
    received_bytes_ += bytes;
    if (in.from >= 0 && peer(in.from).over_at)
      peer(in.from).over_at = Deadline::clock::now() + kLastWords;
    const std::size_t taken = std::min(bytes, direct);
    if (taken > 0) take_payload(in, taken);
    if (!take(in, std::string_view(buffer_.data(), bytes - taken)))
      return end_in(id, "it broke the protocol");
    if (bytes < direct + buffer_.size()) return;
  }
}

// By default the kernel acknowledges a message when it is read, with packets that take half as long
// as a short message. In the mode for interactive connections it acknowledges every second packet.
// It leaves this mode after a pause of 40 ms and when a packet is repeated.
void Connections::keep_interactive(Incoming& in) {
  const Deadline now = coarse_now();
  if (now < in.interactive_until) return;
  delay_acknowledgments(in.fd.get());
  in.interactive_until = now + kInteractiveTime;
}

void Connections::take_payload(Incoming& in, std::size_t bytes) {
  in.payload.advance(bytes);
  if (in.payload.left_bytes == 0) frames_->end_payload(in.payload);
}

// False: to be hung up on.
bool Connections::take(Incoming& in, std::string_view bytes) {
  while (!bytes.empty()) {
    if (in.payload.left_bytes > 0) {
      const std::size_t taken = std::min(in.payload.left_bytes, bytes.size());
      if (in.payload.to != nullptr) std::memcpy(in.payload.to, bytes.data(), taken);
      bytes.remove_prefix(taken);
      take_payload(in, taken);
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

bool Connections::take_hello(Incoming& in) {
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
bool Connections::challenge(Incoming& in, const Hello& hello) {
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

bool Connections::admit(Incoming& in, const Hello& hello) {
  Peer& other = peer(static_cast<int>(hello.rank));
  if (std::exchange(other.has_called[hello.lane], true)) return false;
  in.from = static_cast<int>(hello.rank);
  in.lane = hello.lane;
  in.hello.reset();
  ++other.open_count;
  if (hello.lane == 0) {
    other.in_id = in.id;
    call_back(in.from);
  }
  std::erase_if(strangers_, [&in](const Stranger& each) { return each.id == in.id; });
  return true;
}

bool Connections::take_frame(Incoming& in) {
  const std::optional<Frame> frame = decode_frame(std::string_view(in.head.data(), kHeadBytes));
  in.has_sent_frames = in.has_sent_frames || frame;
  if (!frame || !frames_->take_frame(in.from, *frame, in.payload)) return false;
  if (in.payload.left_bytes == 0) frames_->end_payload(in.payload);
  return true;
}

void Connections::end_in(std::uint32_t id, const std::string& why) {
  const Incoming& in = incoming_.at(id);
  const int from = in.from;
  const bool is_missed = in.lane == 0 || in.has_sent_frames;
  poller_.remove(in.fd.get());
  incoming_.erase(id);
  std::erase_if(strangers_, [id](const Stranger& each) { return each.id == id; });
  if (from < 0) {
    ++rejected_;
    return;
  }
  if (is_missed && peer(from).end.why.empty()) peer(from).end.why = why;
  if (--peer(from).open_count == 0) return end_over(from);
  if (is_missed) await_end(from);
}

// --- Events

void Connections::handle(Poller::Source source, std::uint32_t events) {
  using SourceKind = Poller::Source::Kind;
  if (source.kind == SourceKind::Listener) return take_callers();
  if (source.kind == SourceKind::In) return read(source.which);
  const int rank = static_cast<int>(source.which);
  const Outbox& from = out(rank, source.lane);
  if (from.state() == Outbox::State::Gone) return;
  if (from.is_held() && (events & EPOLLIN) != 0) return take_answer(rank, source.lane);
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
    return end_lane(rank, source.lane, error_of(from.fd()));
  }
  flush(rank, source.lane);
}

bool Connections::poll(int rank) {
  Peer& other = peer(rank);
  if (!other.has_called[0]) return false;
  read(other.in_id);
  if (other.lanes[0].waits_to_write) flush(rank);
  return true;
}

void Connections::do_what_is_due() {
  for (int other = 0; other < size_ && ending_ > 0; ++other) {
    const Peer& late = peer(other);
    if (late.over_at && Deadline::clock::now() >= *late.over_at) end_over(other);
  }
  if (accept_at_ && !is_aborted_) resume_accepting();
}

Deadline Connections::next_due(Deadline latest) const {
  if (accept_at_) latest = std::min(latest, *accept_at_);
  if (ending_ > 0)
    for (const Peer& each : peers_)
      if (each.over_at) latest = std::min(latest, *each.over_at);
  return latest;
}

// --- Ends

// Its last messages may still be on their way.
void Connections::await_end(int rank) {
  Peer& other = peer(rank);
  if (other.is_over || other.over_at) return;
  has_changed_ = true;
  other.over_at = Deadline::clock::now() + kLastWords;
  ++ending_;
}

void Connections::end_over(int rank) {
  Peer& other = peer(rank);
  other.is_over = true;
  if (std::exchange(other.over_at, std::nullopt)) --ending_;
}

void Connections::abort() noexcept {
  is_aborted_ = true;
  incoming_.clear();
  listener_.fd.reset();
  for (int other = 0; other < size_; ++other) {
    end_out(other, "this rank has failed");
    for (Lane& lane : peer(other).lanes) lane.out.hang_up();
  }
}

bool Connections::tell_lost(int rank) noexcept {
  Peer& lost = peer(rank);
  const int fd = lost.lanes[0].out.fd();
  const int error = fd >= 0 ? error_of(fd) : 0;
  note(rank, error);
  lost.end.is_told = !lost.end.is_of_network;
  end_out(rank, error != 0 ? text_of_end(error) : "its process has ended");
  await_end(rank);
  return lost.end.is_told;
}

void Connections::check_alive() const {
  if (is_aborted_) throw aborted_failure();
  if (own_failure_) throw *own_failure_;
}

bool Connections::is_over(std::optional<int> rank) const {
  if (rank) return peer(*rank).is_over;
  for (int other = 0; other < size_; ++other)
    if (other != rank_ && !peer(other).is_over) return false;
  return true;
}

BackendFailure Connections::loss_of(std::optional<int> rank) const {
  return rank ? peer(*rank).end.failure(*rank) : loss_of_all_others();
}

BackendFailure Connections::lateness_of(std::optional<int> rank) const {
  if (!lack_.empty() && (!rank || !peer(*rank).has_called[0]))
    return {Kind::System, std::nullopt,
            "cannot accept the connection of " + (rank ? rank_text(*rank) : "another rank") + ": " +
                lack_};
  const BackendFailure late = lateness_of_peer(rank);
  if (rejected_ == 0) return late;
  return {late.kind, late.peer,
          std::string(late.what()) + "; " + std::to_string(rejected_) +
              " connections were rejected, which did not begin as this group's" +
              (job_key_ ? " with its worker key" : "")};
}

BackendFailure Connections::lateness_of_call(int rank) const {
  const Place& place = peer(rank).place;
  return {Kind::Timeout, rank,
          "cannot connect to " + rank_text(rank) + " at " + place.address + " port " +
              std::to_string(place.port) + ": no answer; check the network between the nodes"};
}

std::vector<Lifeline> Connections::lifelines() const {
  std::vector<Lifeline> lines;
  for (int other = 0; is_lookout_ && other < size_; ++other) {
    const int fd = peer(other).lanes[0].out.fd();
    if (fd >= 0) lines.push_back({fd, other});
  }
  return lines;
}

}  // namespace drun::worker::tcp

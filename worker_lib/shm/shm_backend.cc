#include "worker_lib/shm/shm_backend.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "worker_lib/mesh/matcher.h"
#include "worker_lib/shm/collectives.h"
#include "worker_lib/shm/link.h"
#include "worker_lib/shm/peer_memory.h"
#include "worker_lib/shm/wait.h"

namespace drun::worker {
namespace shm {
namespace {

using Kind = WorkerError::Kind;

// Takes about 0.1 ms.
constexpr std::size_t kFetchBytes = 1024 * 1024;
// How long a thread that only polls helps with progress.
constexpr std::chrono::microseconds kMomentOfMoving{500};

// --- Messages between ranks: matches sends with recvs.
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
class Messages {
 public:
  Messages(const Segment& segment, int rank, SpinPolicy spin, AbortFlag& abort_flag,
           PeerMemory& peers)
      : segment_(segment), abort_flag_(abort_flag), peers_(peers), rank_(rank), spin_(spin) {
    for (int peer = 0; peer < segment.size(); ++peer) {
      links_.push_back(peer == rank ? nullptr : std::make_unique<Link>(segment, rank, peer));
    }
  }

  // Null: it is done already.
  std::unique_ptr<Transfer> start_send(const ConstElements& data, int to, int tag) {
    const Outgoing message{.to = to,
                           .tag = static_cast<std::uint32_t>(tag),
                           .data = static_cast<const std::byte*>(data.data),
                           .bytes = data.count * size_bytes(data.type),
                           .signature = signature_of(data.type, data.count)};
    abort_flag_.check();
    const std::lock_guard lock(mutex_);
    if (link(to).send_at_once(message)) {
      wake(to);
      return nullptr;
    }
    auto queued = std::make_shared<Outgoing>(message);
    link(to).send(queued);
    move();
    return std::make_unique<Started<Outgoing>>(*this, std::move(queued));
  }

  std::unique_ptr<Transfer> start_recv(const Elements& data, std::optional<int> from, int tag,
                                       ClaimSide claim = {}) {
    const std::size_t bytes = data.count * size_bytes(data.type);
    const Signature signature = signature_of(data.type, data.count);
    const std::lock_guard lock(mutex_);
    if (from &&
        has_taken(*from,
                  {.tag = static_cast<std::uint32_t>(tag), .bytes = bytes, .signature = signature},
                  static_cast<std::byte*>(data.data)))
      return nullptr;
    auto message = std::make_shared<Incoming>();
    message->from = from;
    message->slot = static_cast<std::uint32_t>(tag);
    message->claim = claim;
    message->data = static_cast<std::byte*>(data.data);
    message->bytes = bytes;
    message->signature = signature;
    if (const std::shared_ptr<Kept> kept = matcher_.post(message)) take_kept(message, *kept);
    move();
    // A message that has arrived is received in any case.
    if (!message->is_done && abort_flag_.is_raised()) {
      matcher_.withdraw(message);
      abort_flag_.check();
    }
    return std::make_unique<Started<Incoming>>(*this, std::move(message));
  }

 private:
  // An Outgoing or Incoming message that has been started.
  template <typename Message>
  class Started final : public Transfer {
   public:
    Started(Messages& messages, std::shared_ptr<Message> message)
        : messages_(messages), message_(std::move(message)) {}
    ~Started() override {
      if (is_finished_) return;
      const std::lock_guard lock(messages_.mutex_);
      message_->is_dropped = true;
      if constexpr (kIsReceive) messages_.matcher_.withdraw(message_);
    }

    int finish(Deadline deadline) override {
      is_finished_ = messages_.wait_until(deadline, peer(), [&] { return message_->is_done; });
      if constexpr (kIsReceive) {
        if (!is_finished_) {
          const std::lock_guard lock(messages_.mutex_);  // another thread can match it until then
          throw BackendFailure(Kind::Timeout, peer(), "no message came in time");
        }
        if (message_->mismatch)
          throw message_mismatch(*message_->from, *message_->mismatch, message_->signature);
        return *message_->from;
      } else {
        if (is_finished_) return *message_->to;
        throw BackendFailure(
            Kind::Timeout, message_->to,
            "rank " + std::to_string(*message_->to) + " has not received it in time");
      }
    }
    std::optional<bool> is_done() override {
      return messages_.would_end(peer(), [&] { return message_->is_done; });
    }

   private:
    static constexpr bool kIsReceive = std::is_same_v<Message, Incoming>;

    // Of a receive from any rank, known once a message has been matched.
    const std::optional<int>& peer() const {
      if constexpr (kIsReceive) {
        return message_->from;
      } else {
        return message_->to;
      }
    }

    Messages& messages_;
    std::shared_ptr<Message> message_;
    bool is_finished_ = false;
  };

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
  bool would_end(const std::optional<int>& peer, Question&& is_done) {
    std::unique_lock lock(mutex_);
    if (is_done()) return true;
    const Deadline until = Deadline::clock::now() + kMomentOfMoving;
    while (true) {
      const bool is_over = abort_flag_.is_raised() || is_hopeless(peer);
      const bool has_moved = move();
      if (is_done() || is_over) return true;
      if (!has_moved || Deadline::clock::now() >= until) return false;
      lock.unlock();  // waiting threads go first
      lock.lock();
    }
  }

  // Moves messages until is_done(), which is called with the lock held. False if the deadline
  // passes. `peer`: the rank that must do its part; absent: any. It can change with the lock held.
  template <typename Question>
  bool wait_until(Deadline deadline, const std::optional<int>& peer, Question&& is_done) {
    WakeFlag& bell = segment_.message_bell(rank_);
    std::unique_lock lock(mutex_);
    if (is_done()) return true;
    ++waiting_;
    bool is_in_time = true;
    while (true) {
      const std::uint32_t rings = bell.rings.load();
      const std::optional<int> expected = peer;
      const bool is_over = abort_flag_.is_raised() || is_hopeless(expected);
      move();
      // A message that has arrived is received in any case.
      if (is_done() || is_over || !is_in_time) break;
      if (peer != expected) continue;  // matched just now, with a rank that may have ended before
      lock.unlock();
      is_in_time = wait_at(bell, spin_, deadline,
                           [&] { return has_frames() || bell.rings.load() != rings; });
      lock.lock();
    }
    --waiting_;
    if (is_done()) return true;
    abort_flag_.check();
    if (is_hopeless(peer)) abort_flag_.check_lost(peer ? std::vector<int>{*peer} : others());
    return false;
  }

  // All ranks that could still do their part have ended.
  bool is_hopeless(std::optional<int> peer) const {
    if (peer) return abort_flag_.is_lost(*peer);
    const std::vector<int> ranks = others();
    return std::all_of(ranks.begin(), ranks.end(),
                       [&](int rank) { return abort_flag_.is_lost(rank); });
  }
  std::vector<int> others() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < segment_.size(); ++rank) {
      if (rank != rank_) ranks.push_back(rank);
    }
    return ranks;
  }
  bool has_frames() const {
    return std::any_of(links_.begin(), links_.end(),
                       [](const auto& link) { return link && link->has_frames(); });
  }
  // Receives a short message that has arrived and would be the next one anyway, as most do.
  bool has_taken(int from, const Frame& wanted, std::byte* data) {
    if (matcher_.has_any(from, wanted.tag)) return false;
    const std::optional<Frame> frame = link(from).next_short();
    if (!frame || frame->tag != wanted.tag || frame->bytes != wanted.bytes ||
        frame->signature != wanted.signature)
      return false;
    link(from).take(*frame, data);
    link(from).settle(frame->bytes);
    wake(from);
    return true;
  }

  // After frames were written or read.
  void wake(int peer) {
    WakeFlag& bell = segment_.message_bell(peer);
    const bool has_room = link(peer).has_made_room();
    if (has_room) return ring(bell);
    if (link(peer).has_written()) wake_sleepers_of_store(bell);
  }
  // Moves messages. True if any data moved.
  bool move() {
    const int size = segment_.size();
    bool has_done = false;
    for (int i = 0; i < size; ++i) {
      const int peer = (first_link_ + i) % size;
      if (peer == rank_) continue;
      while (const auto frame = link(peer).next()) sort(peer, *frame);
      link(peer).flush();
    }
    bool has_moved = fetch_some();
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank_) continue;
      // Sends grants that were made for one link while another was read.
      link(peer).flush();
      has_done |= link(peer).has_done();
      has_moved |= link(peer).has_moved();
      wake(peer);
    }
    first_link_ = (first_link_ + 1) % size;
    // Another thread may be waiting for a message that this one has completed.
    if (has_done && waiting_ > 0) ring(segment_.message_bell(rank_));
    return has_moved;
  }

  void sort(int from, const Frame& frame) {
    if (const std::shared_ptr<Incoming> wanted = matcher_.meet(from, frame.tag)) {
      const bool is_short = frame.kind == FrameKind::Short &&
                            frame.signature == wanted->signature && frame.bytes == wanted->bytes;
      link(from).take(frame, is_short ? wanted->data : nullptr);
      return accept(wanted, from, frame);
    }
    const auto kept = std::make_shared<Kept>();
    kept->from = from;
    kept->slot = frame.tag;
    kept->frame = frame;
    kept->bytes.resize(frame.bytes);
    link(from).take(frame, kept->bytes.data());
    matcher_.keep(kept);
  }

  void take_kept(const std::shared_ptr<Incoming>& wanted, const Kept& kept) {
    const std::size_t bytes = std::min(kept.bytes.size(), wanted->bytes);
    if (bytes > 0) std::memcpy(wanted->data, kept.bytes.data(), bytes);
    accept(wanted, kept.from, kept.frame);
  }
  // The data of a short message has arrived by now.
  void accept(const std::shared_ptr<Incoming>& wanted, int from, const Frame& frame) {
    wanted->from = from;
    const bool is_short = frame.kind == FrameKind::Short;
    if (is_short) link(from).settle(frame.bytes);
    if (frame.signature != wanted->signature || (is_short && frame.bytes != wanted->bytes)) {
      wanted->mismatch = frame.signature;
    } else if (!is_short) {
      fetches_.push_back(
          {.from = from, .number = frame.number, .address = frame.address, .to = wanted});
      return;
    }
    wanted->is_done = true;
    if (waiting_ > 0) ring(segment_.message_bell(rank_));
  }

  // Reads one piece, so that other messages do not wait long.
  bool fetch_some() {
    if (fetches_.empty()) return false;
    Fetch& fetch = fetches_.front();
    if (fetch.to->is_dropped || has_fetched(fetch)) fetches_.pop_front();
    if (!fetches_.empty() && waiting_ > 0) ring(segment_.message_bell(rank_));
    return true;
  }
  // True if there is nothing more to read for it.
  bool has_fetched(const Fetch& fetch) {
    Incoming& to = *fetch.to;
    const std::size_t bytes = std::min(kFetchBytes, to.bytes - to.got_bytes);
    std::byte* const data = to.data + to.got_bytes;
    if (!peers_.read(fetch.from, fetch.address + to.got_bytes, data, bytes)) {
      to.got_bytes = 0;
      link(fetch.from).grant(fetch.number, fetch.to);
      return true;
    }
    to.got_bytes += bytes;
    if (to.got_bytes < to.bytes) return false;
    // A sender that gives up reports that before its memory is used for something else.
    if (abort_flag_.is_raised()) return true;
    link(fetch.from).confirm(fetch.number);
    to.is_done = true;
    if (waiting_ > 0) ring(segment_.message_bell(rank_));
    return true;
  }

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

// --- The backend

class ShmBackend final : public Backend, public SharesReceives {
 public:
  explicit ShmBackend(Parts parts)
      : spin_(spin_policy_for(parts.segment.size(), parts.cores)),
        lifelines_(std::move(parts.lifelines)),
        abort_flag_(parts.segment, parts.rank),
        regions_(std::move(parts.regions), parts.rank),
        peers_(parts.segment, parts.rank, parts.reads_peers),
        collectives_(parts.segment, parts.rank, spin_, abort_flag_, regions_, peers_),
        messages_(parts.segment, parts.rank, spin_, abort_flag_, peers_) {}

  std::string name() const override { return "shm"; }

  std::string refusal(const Call& call) const override {
    return call.gpu ? "shm works on memory of the host, not of a GPU" : "";
  }

  void run(const Call& call, const Turn& turn) override {
    abort_flag_.check();
    collectives_.run(call, turn);
  }
  std::shared_ptr<void> alloc_shared(std::size_t size_bytes, const Turn& turn) override {
    abort_flag_.check();
    return collectives_.alloc(size_bytes, turn);
  }

  std::unique_ptr<Transfer> start_send(const ConstElements& data, int to, int tag) override {
    return messages_.start_send(data, to, tag);
  }
  std::unique_ptr<Transfer> start_recv(const Elements& data, std::optional<int> from,
                                       int tag) override {
    return messages_.start_recv(data, from, tag);
  }
  std::unique_ptr<Transfer> start_recv_any(const Elements& data, int tag,
                                           ClaimSide claim) override {
    return messages_.start_recv(data, std::nullopt, tag, claim);
  }

  bool tell_lost(int rank) noexcept override {
    abort_flag_.tell_lost(rank);
    return true;
  }
  void abort() noexcept override { abort_flag_.raise(); }
  std::vector<Lifeline> lifelines() const override { return lifelines_.lines; }

 private:
  const SpinPolicy spin_;
  const Lifelines lifelines_;
  AbortFlag abort_flag_;
  Regions regions_;
  PeerMemory peers_;
  Collectives collectives_;
  Messages messages_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(Parts parts) {
  return std::make_unique<ShmBackend>(std::move(parts));
}

Parts connect_parts(const BackendContext& context) {
  const std::vector<int>& nodes = context.node_of;
  if (std::any_of(nodes.begin(), nodes.end(), [&](int node) { return node != nodes.front(); })) {
    throw BackendFailure(Kind::Unsupported, "shm is for ranks of one node; choose shm+tcp or tcp");
  }
  Connection connection = connect_ranks(context, Segment::bytes_for(context.size));
  return {.rank = context.rank,
          .segment = Segment(connection.segment.get(), context.size),
          .regions = std::move(connection.regions),
          .lifelines = std::move(connection.lifelines),
          .cores = connection.cores};
}

}  // namespace shm

std::unique_ptr<Backend> connect_shm(const BackendContext& context) {
  return shm::make_backend(shm::connect_parts(context));
}

}  // namespace drun::worker


#include <atomic>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "worker_lib/algorithms/collectives.h"
#include "worker_lib/algorithms/exchange.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/mesh/mesh.h"

namespace drun::worker {
namespace {

// --- Slots: the top byte is the kind of traffic, the rest identifies the message

enum class Traffic : std::uint8_t {
  Agreement = 0xD1,
  Collective = 0xD2,
  Header = 0xD3,
  Payload = 0xD4
};

std::uint64_t make_slot(Traffic traffic, std::uint64_t which) {
  return static_cast<std::uint64_t>(traffic) << 56 | (which & ~(std::uint64_t{0xFF} << 56));
}
std::uint64_t header_slot(int tag) {
  return make_slot(Traffic::Header, static_cast<std::uint32_t>(tag));
}
std::uint64_t payload_slot(std::uint64_t number) { return make_slot(Traffic::Payload, number); }

// A hash: every bit depends on all bits of both arguments. Source: SplitMix64 by Steele,
// Lea and Flood.
std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  std::uint64_t x = hash * 0x9e3779b97f4a7c15 + value + 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}
std::uint64_t mix(std::uint64_t hash, const Signature& signature) {
  return mix(mix(hash, signature.what), signature.count);
}

// --- Collectives

// Every message is known by what it belongs to and its size, so none is ever given to a receiver
// that expects another.
class MeshExchange final : public Exchange {
 public:
  MeshExchange(Mesh& mesh, Traffic traffic, std::uint64_t hash, Deadline deadline)
      : Exchange(mesh.rank(), mesh.size()),
        mesh_(mesh),
        traffic_(traffic),
        hash_(hash),
        deadline_(deadline) {}

  std::size_t piece_bytes(std::size_t part_bytes) const override {
    return mesh_.piece_bytes(part_bytes);
  }

 private:
  Handle start_send(int to, const void* data, std::size_t size_bytes) override {
    return started([&] { return mesh_.send(to, slot_for(size_bytes), data, size_bytes); });
  }
  Handle start_recv(int from, void* data, std::size_t size_bytes) override {
    return started([&] { return mesh_.recv(from, slot_for(size_bytes), data, size_bytes); });
  }
  void finish(Handle handle) override {
    stopping_all([&] { messages_[handle]->finish(deadline_); });
    messages_[handle].reset();
    free_.push_back(handle);
  }

  std::uint64_t slot_for(std::size_t size_bytes) const {
    return make_slot(traffic_, mix(hash_, size_bytes));
  }
  template <typename Start>
  Handle started(Start&& start) {
    Mesh::Started message;
    stopping_all([&] { message = start(); });
    if (free_.empty()) {
      messages_.push_back(std::move(message));
      return messages_.size() - 1;
    }
    const Handle handle = free_.back();
    free_.pop_back();
    messages_[handle] = std::move(message);
    return handle;
  }
  template <typename Action>
  void stopping_all(Action&& action) {
    try {
      action();
    } catch (...) {
      messages_.clear();  // before the algorithm's memory is gone
      throw;
    }
  }

  Mesh& mesh_;
  Traffic traffic_;
  std::uint64_t hash_;
  Deadline deadline_;
  // By handle. The handles of finished messages are used again: a large collective starts tens of
  // thousands.
  std::vector<Mesh::Started> messages_;
  std::vector<Handle> free_;
};

// --- Messages of the program
//
// A header with type, count and the sender's message number, and with the data if it is short;
// otherwise the data follows in a slot of that number. If the receiver has less room than the
// message, the message is never delivered. Headers of one pair and tag arrive in order; the data
// can arrive in any order. Both are sent when the message is started; finish only waits. The mesh
// outlives the Transfers, which cancel when destroyed.

// Up to here the data comes with the header: copying it costs less than a second message.
constexpr std::size_t kShortBytes = 32 * 1024;

struct Header {
  Signature what{};
  std::uint64_t number = 0;
};
static_assert(sizeof(Header) == sizeof(Signature) + 8);
// A receiver has room for any short message, to report one of another size.
constexpr std::size_t kLetterBytes = sizeof(Header) + kShortBytes;

std::size_t bytes_of(const ConstElements& data) { return data.count * size_bytes(data.type); }

class Sending final : public Transfer {
 public:
  Sending(Mesh& mesh, const ConstElements& data, int to, int tag, std::uint64_t number) {
    const Header header{signature_of(data.type, data.count), number};
    const std::size_t bytes = bytes_of(data);
    const std::size_t with_header = bytes <= kShortBytes ? bytes : 0;
    letter_ = std::make_unique_for_overwrite<char[]>(sizeof header + with_header);
    std::memcpy(letter_.get(), &header, sizeof header);
    if (with_header > 0) std::memcpy(&letter_[sizeof header], data.data, with_header);
    first_ = mesh.send(to, header_slot(tag), letter_.get(), sizeof header + with_header);
    has_second_ = bytes > with_header;
    if (has_second_) second_ = mesh.send(to, payload_slot(number), data.data, bytes);
  }
  int finish(Deadline deadline) override {
    const int to = first_->finish(deadline);
    if (has_second_) second_->finish(deadline);
    return to;
  }
  std::optional<bool> is_done() override {
    const std::optional<bool> first = first_->is_done();
    return first == true && has_second_ ? second_->is_done() : first;
  }

 private:
  std::unique_ptr<char[]> letter_;
  bool has_second_ = false;
  Mesh::Started first_;  // gone before the letter
  Mesh::Started second_;
};

class Receiving final : public Transfer {
 public:
  Receiving(Mesh& mesh, const Elements& data, std::optional<int> from, int tag, ClaimSide claim)
      : mesh_(mesh), data_(data), letter_(std::make_unique_for_overwrite<char[]>(kLetterBytes)) {
    first_ = from ? mesh.recv(*from, header_slot(tag), letter_.get(), kLetterBytes)
                  : mesh.recv_any(header_slot(tag), letter_.get(), kLetterBytes, claim);
  }
  int finish(Deadline deadline) override {
    if (failure_) std::rethrow_exception(failure_);
    if (!from_) take_header(deadline);
    if (second_) second_->finish(deadline);
    return *from_;
  }
  std::optional<bool> is_done() override {
    if (!from_ && !failure_) {
      const std::optional<bool> has_header = first_->is_done();
      if (has_header != true) return has_header;
      try {
        take_header(Deadline::clock::now());
      } catch (...) {
        failure_ = std::current_exception();
      }
    }
    return failure_ || !second_ ? true : second_->is_done();
  }

 private:
  void take_header(Deadline deadline) {
    const int from = first_->finish(deadline);
    Header header;
    std::memcpy(&header, letter_.get(), sizeof header);
    const Signature expected = signature_of(data_.type, data_.count);
    if (header.what != expected) throw message_mismatch(from, header.what, expected);
    const std::size_t bytes = bytes_of(data_);
    if (bytes > kShortBytes) {
      second_ = mesh_.recv(from, payload_slot(header.number), data_.data, bytes);
    } else if (bytes > 0) {
      std::memcpy(data_.data, &letter_[sizeof header], bytes);
    }
    from_ = from;
  }

  Mesh& mesh_;
  Elements data_;
  std::unique_ptr<char[]> letter_;
  std::optional<int> from_;     // set: the header has arrived
  std::exception_ptr failure_;  // found by is_done()
  Mesh::Started first_;         // gone before the letter
  Mesh::Started second_;
};

// --- Both

class MeshBackend final : public Backend, public SharesReceives {
 public:
  MeshBackend(std::unique_ptr<Mesh> mesh, bool is_debug, std::unique_ptr<Mesh> other)
      : is_debug_(is_debug), mesh_(std::move(mesh)), other_(std::move(other)) {}

  std::string name() const override { return mesh_->name(); }
  std::string refusal(const Call& call) const override {
    return call.gpu ? name() + " works on memory of the host, not of a GPU" : "";
  }

  void run(const Call& call, const Turn& turn) override {
    if (is_debug_) {
      MeshExchange meeting(*mesh_, Traffic::Agreement, turn.sequence, turn.deadline);
      agree(meeting, call, turn.sequence);
      if (call.operation == Operation::Barrier) return;
      compare_counts(meeting, call, turn.sequence);
    }
    const std::uint64_t hash = mix(turn.sequence, signature_of(call, mesh_->size()));
    MeshExchange exchange(*mesh_, Traffic::Collective, hash, turn.deadline);
    run_collective(exchange, call);
  }

  std::unique_ptr<Transfer> start_send(const ConstElements& data, int to, int tag) override {
    auto sending = std::make_unique<Sending>(of_messages(), data, to, tag, next_number_++);
    if (sending->is_done() != true) return sending;
    sending->finish(Deadline::clock::now());  // throws if it has failed
    return nullptr;
  }
  std::unique_ptr<Transfer> start_recv(const Elements& data, std::optional<int> from,
                                       int tag) override {
    return std::make_unique<Receiving>(of_messages(), data, from, tag, ClaimSide{});
  }
  std::unique_ptr<Transfer> start_recv_any(const Elements& data, int tag,
                                           ClaimSide claim) override {
    return std::make_unique<Receiving>(of_messages(), data, std::nullopt, tag, claim);
  }

  void abort() noexcept override {
    mesh_->abort();
    if (other_) other_->abort();
  }
  bool keeps_deadlines() const override { return mesh_->keeps_deadlines(); }
  std::vector<Lifeline> lifelines() const override { return of_messages().lifelines(); }
  bool tell_lost(int rank) noexcept override {
    const bool is_end = !other_ || other_->tell_lost(rank);
    return mesh_->tell_lost(rank) && is_end;
  }

 private:
  Mesh& of_messages() const { return other_ ? *other_ : *mesh_; }

  const bool is_debug_;
  const std::unique_ptr<Mesh> mesh_;
  const std::unique_ptr<Mesh> other_;  // of the messages; null: mesh_
  std::atomic<std::uint64_t> next_number_{0};
};

}  // namespace

std::size_t Mesh::piece_bytes(std::size_t) const { return Exchange::kPieceBytes; }

Mesh::Started Mesh::recv_any(Slot, void*, std::size_t, ClaimSide) {
  throw BackendFailure(WorkerError::Kind::Unsupported, std::nullopt,
                       name() + " does not receive from any rank");
}

std::unique_ptr<Backend> make_mesh_backend(std::unique_ptr<Mesh> mesh, bool is_debug,
                                           std::unique_ptr<Mesh> messages) {
  return std::make_unique<MeshBackend>(std::move(mesh), is_debug, std::move(messages));
}

}  // namespace drun::worker

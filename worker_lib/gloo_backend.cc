#include "worker_lib/gloo_backend.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <string_view>
#include <tuple>
#include <vector>

#include "worker_lib/reduce.h"
#include "worker_lib/signals.h"
#include "worker_lib/signature.h"
#include "worker_lib/tree.h"

namespace drun::worker {
namespace {

using Kind = WorkerError::Kind;
using Milliseconds = std::chrono::milliseconds;
using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

// The group keeps the deadlines of collectives (Gloo's are per message); Gloo's own only catch what
// the group's abort could not wake.
constexpr Milliseconds kBackstop{1000};

// Up to here a tree is faster than Gloo's ring.
constexpr std::size_t kTreeBytes = 256 * 1024;

Milliseconds left_until(Deadline deadline) {
  const auto left =
      std::chrono::duration_cast<Milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max(left, Milliseconds(1));
}

// 64 bits that tell messages between two ranks apart. Gloo's collectives begin with bytes 1 to 8.
enum class Traffic : std::uint64_t {
  Agree = 0xD1,
  Up = 0xD2,
  Down = 0xD3,
  Header = 0xD4,
  Payload = 0xD5,
  Probe = 0xD6,
};
std::uint64_t slot(Traffic traffic, std::uint32_t tag, std::uint32_t sequence) {
  return static_cast<std::uint64_t>(traffic) << 56 | static_cast<std::uint64_t>(tag) << 32 |
         sequence;
}

class StoreForGloo final : public gloo::rendezvous::Store {
 public:
  StoreForGloo(std::shared_ptr<KeyStore> store, Deadline deadline)
      : store_(std::move(store)), deadline_(deadline) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_->set(key, std::string(data.begin(), data.end()), left_until(deadline_));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_->get(key, left_until(deadline_));
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    store_->wait(keys, left_until(deadline_));
  }
  void wait(const std::vector<std::string>& keys, const Milliseconds&) override { wait(keys); }

 private:
  std::shared_ptr<KeyStore> store_;
  Deadline deadline_;
};

// Newer Gloos take the store by shared pointer.
template <typename Context>
void connect_full_mesh(Context& context, const std::shared_ptr<StoreForGloo>& store,
                       std::shared_ptr<gloo::transport::Device>& device) {
  if constexpr (requires { context.connectFullMesh(*store, device); }) {
    context.connectFullMesh(*store, device);
  } else {
    context.connectFullMesh(store, device);
  }
}

// "[/build/gloo/x.cc:12] Connection closed" -> "Connection closed".
std::string without_place(std::string_view text) {
  const std::size_t end = text.rfind('[', 0) == 0 ? text.find("] ") : std::string_view::npos;
  return std::string(end == std::string_view::npos ? text : text.substr(end + 2));
}

class Blocking final : public Transfer {
 public:
  Blocking(std::function<void(Deadline)> deed, int peer) : deed_(std::move(deed)), peer_(peer) {}
  int finish(Deadline deadline) override {
    deed_(deadline);
    return peer_;
  }

 private:
  std::function<void(Deadline)> deed_;
  int peer_;
};

class GlooBackend final : public Backend {
 public:
  explicit GlooBackend(const BackendContext& mesh) : rank_(mesh.rank), size_(mesh.size) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = mesh.address;
    {
      const SignalsBlocked blocked;  // inherited by Gloo's thread
      device_ = gloo::transport::tcp::CreateDevice(attributes);
    }
    store_ = std::make_shared<StoreForGloo>(mesh.store, mesh.deadline);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank_, size_);
    context->setTimeout(left_until(mesh.deadline));
    connect_full_mesh(*context, store_, device_);
    context_ = std::move(context);
  }
  // Pairs before the device, the device before the store.
  ~GlooBackend() override {
    context_.reset();
    device_.reset();
  }

  std::string name() const override { return "gloo"; }
  std::string refusal(const Call& call) const override {
    if (call.gpu) return "gloo works on memory of the host; use nccl";
    const bool is_known = call.operation == Operation::Barrier ||
                          call.operation == Operation::Broadcast ||
                          call.operation == Operation::AllReduce;
    return is_known ? "" : "not yet in gloo";
  }

  void run(const Call& call, const Turn& turn) override {
    const Elements data(call.output, call.count, call.type);
    guarded([&] {
      agree_or_throw(signature_of(call, size_), turn.sequence,
                     left_until(turn.deadline) + kBackstop);
    });
    if (call.count == 0) return;
    if (call.operation == Operation::AllReduce)
      all_reduce(data, call.op, turn.sequence, turn.deadline);
    if (call.operation == Operation::Broadcast)
      broadcast(data, call.root, turn.sequence, turn.deadline);
  }

  std::unique_ptr<Transfer> start_send(const ConstElements& data, int to, int tag) override {
    return std::make_unique<Blocking>(
        [this, data, to, tag](Deadline deadline) { send(data, to, tag, deadline); }, to);
  }
  std::unique_ptr<Transfer> start_recv(const Elements& data, std::optional<int> from,
                                       int tag) override {
    return std::make_unique<Blocking>(
        [this, data, from, tag](Deadline deadline) { recv(data, *from, tag, deadline); }, *from);
  }

  void all_reduce(Elements data, ReduceOp op, std::uint32_t sequence, Deadline deadline) {
    guarded([&] {
      if (data.count * size_bytes(data.type) <= kTreeBytes) {
        return tree_all_reduce(data, op, sequence, left_until(deadline) + kBackstop);
      }
      gloo::AllreduceOptions options(context_);
      options.setTag(sequence);
      options.setTimeout(left_until(deadline) + kBackstop);
      options.setReduceFunction(reduce_function(data.type, op));
      set_output(options, data);
      gloo::allreduce(options);
    });
  }

  void broadcast(Elements data, int root, std::uint32_t sequence, Deadline deadline) {
    guarded([&] {
      gloo::BroadcastOptions options(context_);
      options.setTag(sequence);
      options.setTimeout(left_until(deadline) + kBackstop);
      options.setRoot(root);
      options.setOutput(static_cast<char*>(data.data), data.count * size_bytes(data.type));
      gloo::broadcast(options);
    });
  }

  void send(ConstElements data, int to, int tag, Deadline deadline) {
    guarded([&] { send_message(data, to, tag, deadline); }, to);
  }

  void recv(Elements data, int from, int tag, Deadline deadline) {
    guarded([&] { recv_message(data, from, tag, deadline); }, from);
  }

  // Gloo cannot be cancelled; but a wait that times out closes all pairs of its context and wakes
  // everybody who waits on them, and closing the connections alone would not wake anyone.
  bool keeps_deadlines() const override { return false; }
  void abort() noexcept override {
    try {
      char byte = 0;
      context_->createUnboundBuffer(&byte, sizeof byte)->waitRecv(nullptr, Milliseconds(1));
    } catch (const std::exception&) {
      // That was the purpose.
    }
    try {
      context_->closeConnections();
    } catch (const std::exception&) {
      // Closed already, then.
    }
  }

 private:
  // What ranks tell each other in `agree`.
  struct Note {
    Signature call{};
    char is_agreed = 1;  // as far as the sender has heard
  };

  // In round k each rank tells the one 2^k further on; after log2(size) rounds everybody has heard
  // of everybody, and a difference anywhere has reached all.
  void agree_or_throw(const Signature& call, std::uint32_t sequence, Milliseconds timeout) {
    std::vector<int> distances;
    for (int distance = 1; distance < size_; distance *= 2) distances.push_back(distance);
    const std::size_t rounds = distances.size();
    std::vector<Note> heard(rounds);
    std::vector<Note> told(rounds);
    std::vector<Buffer> inbox;
    std::vector<Buffer> outbox;
    for (std::size_t k = 0; k < rounds; ++k) {
      inbox.push_back(context_->createUnboundBuffer(&heard[k], sizeof(Note)));
      inbox[k]->recv((rank_ - distances[k] + size_) % size_,
                     slot(Traffic::Agree, static_cast<std::uint32_t>(k), sequence));
    }
    bool is_agreed = true;
    for (std::size_t k = 0; k < rounds; ++k) {
      told[k] = Note{call, static_cast<char>(is_agreed)};
      outbox.push_back(context_->createUnboundBuffer(&told[k], sizeof(Note)));
      outbox[k]->send((rank_ + distances[k]) % size_,
                      slot(Traffic::Agree, static_cast<std::uint32_t>(k), sequence));
      inbox[k]->waitRecv(nullptr, timeout);
      is_agreed = is_agreed && heard[k].is_agreed != 0 && heard[k].call == call;
    }
    for (const Buffer& sent : outbox) sent->waitSend(nullptr, timeout);
    if (!is_agreed) throw_disagreement(call, sequence, timeout);
  }

  [[noreturn]] void throw_disagreement(const Signature& call, std::uint32_t sequence,
                                       Milliseconds timeout) {
    Signature mine = call;
    std::vector<Signature> all(static_cast<std::size_t>(size_));
    gloo::AllgatherOptions options(context_);
    options.setTag(sequence);
    options.setTimeout(timeout);
    options.setInput(mine.data(), kSignatureBytes);
    options.setOutput(all.data()->data(), kSignatureBytes * all.size());
    gloo::allgather(options);
    throw BackendFailure(Kind::Mismatch, std::nullopt,
                         "the ranks disagree about collective number " + std::to_string(sequence) +
                             ": " + describe_disagreement(all));
  }

  // Gloo's ring sends 4 * (size - 1) messages from each rank, however short. Here only 2 * (size -
  // 1) are sent by all ranks together; and the numbers are always added in the same order.
  void tree_all_reduce(const Elements& data, ReduceOp op, std::uint32_t sequence,
                       Milliseconds timeout) {
    const std::size_t bytes = data.count * size_bytes(data.type);
    const ReduceFunction reduce = reduce_function(data.type, op);
    const TreePlace place = place_in_tree(rank_, size_);
    const std::size_t children = place.children.size();
    std::vector<char> scratch(children * bytes);
    std::vector<Buffer> from_children;
    for (std::size_t i = 0; i < children; ++i) {
      from_children.push_back(context_->createUnboundBuffer(&scratch[i * bytes], bytes));
      from_children[i]->recv(place.children[i], slot(Traffic::Up, 0, sequence));
    }
    for (std::size_t i = 0; i < children; ++i) {
      from_children[i]->waitRecv(nullptr, timeout);
      reduce(data.data, data.data, &scratch[i * bytes], data.count);
    }
    const Buffer all = context_->createUnboundBuffer(data.data, bytes);
    if (place.parent) {
      all->send(*place.parent, slot(Traffic::Up, 0, sequence));
      all->waitSend(nullptr, timeout);
      all->recv(*place.parent, slot(Traffic::Down, 0, sequence));
      all->waitRecv(nullptr, timeout);
    }
    for (const int child : place.children) all->send(child, slot(Traffic::Down, 0, sequence));
    for (std::size_t i = 0; i < children; ++i) all->waitSend(nullptr, timeout);
  }

  static void set_output(gloo::AllreduceOptions& options, const Elements& data) {
    switch (size_bytes(data.type)) {
      case 1:
        return options.setOutput(static_cast<std::uint8_t*>(data.data), data.count);
      case 4:
        return options.setOutput(static_cast<std::uint32_t*>(data.data), data.count);
      default:
        return options.setOutput(static_cast<std::uint64_t*>(data.data), data.count);
    }
  }

  static Signature header_of(DataType type, std::size_t count) { return signature_of(type, count); }

  void send_message(ConstElements data, int to, int tag, Deadline deadline) {
    const std::uint32_t number = next_number(to, tag, true);
    const auto tag_bits = static_cast<std::uint32_t>(tag);
    Signature header = header_of(data.type, data.count);
    const Buffer first = context_->createUnboundBuffer(header.data(), header.size());
    first->send(to, slot(Traffic::Header, tag_bits, number));
    Buffer second;
    if (data.count > 0) {
      second = context_->createUnboundBuffer(const_cast<void*>(data.data),
                                             data.count * size_bytes(data.type));
      second->send(to, slot(Traffic::Payload, tag_bits, number));
    }
    first->waitSend(nullptr, left_until(deadline));
    if (second) second->waitSend(nullptr, left_until(deadline));
  }

  // A receiver with less room than the message would be terminated by Gloo: the header comes first.
  void recv_message(Elements data, int from, int tag, Deadline deadline) {
    const std::uint32_t number = next_number(from, tag, false);
    const auto tag_bits = static_cast<std::uint32_t>(tag);
    Signature header{};
    const Buffer first = context_->createUnboundBuffer(header.data(), header.size());
    first->recv(from, slot(Traffic::Header, tag_bits, number));
    first->waitRecv(nullptr, left_until(deadline));
    const Signature expected = header_of(data.type, data.count);
    if (header != expected) {
      throw BackendFailure(Kind::Mismatch, from,
                           "rank " + std::to_string(from) + " sends " + describe(header) +
                               ", this rank receives " + describe(expected));
    }
    if (data.count == 0) return;
    const Buffer second =
        context_->createUnboundBuffer(data.data, data.count * size_bytes(data.type));
    second->recv(from, slot(Traffic::Payload, tag_bits, number));
    second->waitRecv(nullptr, left_until(deadline));
  }

  // The how manieth message to or from this peer with this tag.
  std::uint32_t next_number(int peer, int tag, bool is_send) {
    const std::lock_guard lock(numbers_mutex_);
    return numbers_[{peer, tag, is_send}]++;
  }

  template <typename Operation>
  void guarded(Operation&& operation, std::optional<int> peer = std::nullopt) {
    try {
      operation();
    } catch (const gloo::IoException& error) {
      throw failure(without_place(error.what()), peer);
    } catch (const gloo::Exception& error) {
      throw BackendFailure(Kind::System, peer, "Gloo: " + without_place(error.what()));
    }
  }

  BackendFailure failure(const std::string& text, std::optional<int> peer) {
    if (text.find("Application timeout") != std::string::npos) {
      return {Kind::Broken, std::nullopt, "another operation of this rank was not done in time"};
    }
    if (text.find("Timed out") != std::string::npos) {
      return {Kind::Timeout, peer,
              peer ? "rank " + std::to_string(*peer) + " did not do its part in time"
                   : "the others did not do their part in time"};
    }
    const std::vector<int> lost = peer ? std::vector<int>{*peer} : lost_peers();
    if (lost.empty()) return {Kind::PeerLost, std::nullopt, "lost a connection: " + text};
    return {Kind::PeerLost, lost.front(),
            "lost the connection to " + describe_ranks(lost) + ": " + text};
  }

  // Gloo does not say which connection failed, but refuses to use it again.
  std::vector<int> lost_peers() {
    std::vector<int> lost;
    char byte = 0;
    const Buffer probe = context_->createUnboundBuffer(&byte, sizeof byte);
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      try {
        probe->recv(peer, slot(Traffic::Probe, 0, 0));
      } catch (const gloo::Exception&) {
        lost.push_back(peer);
      }
    }
    return lost;
  }

  const int rank_;
  const int size_;
  std::shared_ptr<StoreForGloo> store_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::Context> context_;
  std::mutex numbers_mutex_;
  std::map<std::tuple<int, int, bool>, std::uint32_t> numbers_;
};

}  // namespace

std::string gloo_build() { return DRUN_GLOO_BUILD; }

std::unique_ptr<Backend> connect_gloo(const BackendContext& mesh) {
  try {
    return std::make_unique<GlooBackend>(mesh);
  } catch (const WorkerError&) {
    throw;  // the store's
  } catch (const gloo::Exception& error) {
    const std::string text = without_place(error.what());
    const bool is_timeout =
        text.find("imed out") != std::string::npos || text.find("imeout") != std::string::npos;
    throw BackendFailure(is_timeout ? Kind::Timeout : Kind::PeerLost, std::nullopt,
                         "cannot connect all ranks: " + text);
  } catch (const std::exception& error) {
    throw BackendFailure(Kind::System, std::nullopt,
                         std::string("cannot connect all ranks: ") + error.what());
  }
}

}  // namespace drun::worker

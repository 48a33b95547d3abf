#include "worker_lib/gloo/gloo_backend.h"

#include <gloo/common/logging.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/device.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "drun/key_store.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_lib/base/deadline.h"
#include "worker_lib/base/process.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/mesh/gather_texts.h"
#include "worker_lib/mesh/message.h"
#include "worker_lib/tcp/tcp_mesh.h"

namespace drun::worker {
namespace {

using Kind = WorkerError::Kind;
using Milliseconds = std::chrono::milliseconds;
using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

// Gloo's own timeouts, beyond the deadline: they close all connections before the cause can be
// published. They only end waits that the group's abort could not wake.
constexpr Milliseconds kBackstop{1000};
// Within this time everything that an ended process had sent has arrived, even on a busy machine. A
// broken connection ends the wait at once.
constexpr Milliseconds kLastWords{500};

// No rank sends to this slot.
constexpr Mesh::Slot kProbe = std::uint64_t{0xFF} << 56;

// "[/build/gloo/x.cc:12] Connection closed" -> "Connection closed".
std::string without_place(std::string_view text) {
  const std::size_t end = text.rfind('[', 0) == 0 ? text.find("] ") : std::string_view::npos;
  return std::string(end == std::string_view::npos ? text : text.substr(end + 2));
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

std::size_t offset_of(const void* data) { return reinterpret_cast<std::size_t>(data); }

// The group's store, through which Gloo's ranks exchange their addresses. Blocks until the
// deadline. Errors: as await_keys.
class StoreForGloo final : public gloo::rendezvous::Store {
 public:
  explicit StoreForGloo(const BackendContext& context) : context_(context) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    context_.store->set(key, std::string(data.begin(), data.end()), left_until(context_.deadline));
    keys_.push_back(key);
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = await_text(context_, key, other_ranks(context_));
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    await_keys(context_, keys, other_ranks(context_));
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

  // Call it once every rank is connected.
  void forget_keys() {
    for (const std::string& key : std::exchange(keys_, {})) forget_key(context_, key);
  }

 private:
  const BackendContext context_;
  std::vector<std::string> keys_{};  // that this rank has set
};

// Newer versions of Gloo take the store by shared pointer.
template <typename Context>
void connect_full_mesh(Context& context, const std::shared_ptr<StoreForGloo>& store,
                       std::shared_ptr<gloo::transport::Device>& device) {
  if constexpr (requires { context.connectFullMesh(*store, device); }) {
    context.connectFullMesh(*store, device);
  } else {
    context.connectFullMesh(store, device);
  }
}

// Keeps the thread of a Gloo device awake during its lifetime.
//
// Why:     closing a connection, and the device's destructor, wait until that thread returns from
//          epoll, which takes up to 10 ms if it is idle (transport/tcp/loop.cc): a second for a
//          hundred connections.
// Owner:   the caller, on its stack; the device outlives it unless let_device_end() was called.
// Thread:  any except the device's own.
// Errors:  none; without a free descriptor it has no effect, and closing takes longer.
class AwakeDevice final : gloo::transport::tcp::Handler {
 public:
  explicit AwakeDevice(gloo::transport::Device& device) noexcept
      : device_(dynamic_cast<gloo::transport::tcp::Device*>(&device)),
        always_readable_(eventfd(1, EFD_CLOEXEC)),
        stage_(std::make_shared<std::atomic<Stage>>(Stage::Awake)) {
    if (device_ == nullptr || !always_readable_) return;
    try {
      device_->registerDescriptor(always_readable_.get(), EPOLLIN, this);
      is_registered_ = true;
    } catch (const std::exception&) {
      // As if there were no descriptor.
    }
  }
  // Only the device's own thread can unregister a descriptor without waiting for itself.
  ~AwakeDevice() override {
    if (!is_registered_) return;
    *stage_ = Stage::Ending;
    stage_->wait(Stage::Ending);
  }
  AwakeDevice(const AwakeDevice&) = delete;
  AwakeDevice& operator=(const AwakeDevice&) = delete;

  // The device will be destroyed before this object.
  void let_device_end() { is_registered_ = false; }

 private:
  enum class Stage { Awake, Ending, Ended };

  void handleEvents(int /*events*/) override {
    if (*stage_ != Stage::Ending) return;
    const std::shared_ptr<std::atomic<Stage>> stage =
        stage_;  // this object may be destroyed once it is Ended
    try {
      device_->unregisterDescriptor(always_readable_.get(), this);
    } catch (const std::exception&) {
      // Closing the descriptor has the same effect.
    }
    *stage = Stage::Ended;
    stage->notify_one();
  }

  gloo::transport::tcp::Device* device_;
  UniqueFd always_readable_;
  std::shared_ptr<std::atomic<Stage>> stage_;
  bool is_registered_ = false;
};

// A mesh over Gloo's TCP.
//
// Slots:   the top byte is not 0 to 0x10, nor 0xFF. The receiver's buffer must have room for the
//          whole message; Gloo ends the process otherwise.
// Waits:   a send waits until the receiver has taken it. The group aborts at the deadline; a second
//          later Gloo gives up by itself and closes all connections.
// Lookout: none: Gloo reports the end of a connection only to threads that wait for it.
// Quirks:  in every version of Gloo, a broken connection wakes threads that wait for a message that
//          has not begun to arrive, but not threads that wait for the rest of a message
//          (transport/tcp/pair.cc, signalException).
class GlooMesh final : public Mesh {
 public:
  // Connects to every other rank. Errors: Gloo's, BackendFailure, and the store's WorkerError.
  explicit GlooMesh(const BackendContext& context)
      : rank_(context.rank),
        size_(context.size),
        lost_(static_cast<std::size_t>(context.size)),
        idle_(static_cast<std::size_t>(context.size)) {
    ignore_default_sigpipe();
    gloo::transport::tcp::attr attributes;
    attributes.hostname = context.address;
    {
      const SignalsBlocked blocked;  // inherited by Gloo's thread
      device_ = gloo::transport::tcp::CreateDevice(attributes);
    }
    store_ = std::make_shared<StoreForGloo>(context);
    auto connecting = std::make_shared<gloo::rendezvous::Context>(rank_, size_);
    connecting->setTimeout(left_until(context.deadline));
    connect_full_mesh(*connecting, store_, device_);
    context_ = std::move(connecting);
  }

  ~GlooMesh() override {
    channels_.clear();
    AwakeDevice awake(*device_);
    context_.reset();
    awake.let_device_end();
    device_.reset();
  }
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;

  std::string name() const override { return "gloo"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  // As StoreForGloo's.
  void forget_keys() { store_->forget_keys(); }

  Started send(int to, Slot slot, const void* data, std::size_t size_bytes) override {
    return start(to, [&](Channel& channel) {
      channel.is_send = true;
      channel.buffer->send(to, slot, offset_of(data), size_bytes);
    });
  }
  Started recv(int from, Slot slot, void* data, std::size_t size_bytes) override {
    return start(from, [&](Channel& channel) {
      channel.is_send = false;
      channel.buffer->recv(from, slot, offset_of(data), size_bytes);
    });
  }

  // Gloo's operations cannot be canceled, and closing connections wakes no thread: each is woken
  // here.
  void abort() noexcept override {
    if (is_aborted_.exchange(true)) return;
    wake(std::nullopt);
    const AwakeDevice awake(*device_);
    try {
      context_->closeConnections();
    } catch (const std::exception&) {
      // Closed already, then.
    }
  }

  bool keeps_deadlines() const override { return false; }
  std::vector<Lifeline> lifelines() const override { return {}; }
  bool tell_lost(int rank) noexcept override {
    if (rank < 0 || rank >= size_) return true;
    lost_[static_cast<std::size_t>(rank)] = true;
    wake(rank);
    return true;
  }

 private:
  // Transfers one message at a time. Its buffer is all of memory, with addresses as offsets, so
  // that it can be used again. It always waits for a message on its connection that is never sent,
  // so that Gloo wakes it when the connection breaks, whatever the state of its real message.
  struct Channel {
    Buffer buffer;
    int peer = 0;
    bool is_send = false;
  };
  // One message on its channel.
  class OnChannel final : public Transfer {
   public:
    OnChannel(GlooMesh& mesh, Channel& channel) : mesh_(mesh), channel_(&channel) {}
    OnChannel(const OnChannel&) = delete;
    OnChannel& operator=(const OnChannel&) = delete;
    ~OnChannel() override {
      if (channel_ != nullptr) mesh_.drop(*channel_);
    }
    int finish(Deadline deadline) override {
      mesh_.wait(*channel_, deadline);
      Channel& channel = *std::exchange(channel_, nullptr);
      const std::lock_guard lock(mesh_.mutex_);
      mesh_.idle_[static_cast<std::size_t>(channel.peer)].push_back(&channel);
      return channel.peer;
    }

   private:
    GlooMesh& mesh_;
    Channel* channel_;
  };

  Channel& take(int peer) {
    {
      const std::lock_guard lock(mutex_);
      std::vector<Channel*>& waiting = idle_[static_cast<std::size_t>(peer)];
      if (!waiting.empty()) {
        Channel& channel = *waiting.back();
        waiting.pop_back();
        return channel;
      }
    }
    auto channel = std::make_unique<Channel>();
    channel->buffer =
        context_->createUnboundBuffer(nullptr, std::numeric_limits<std::size_t>::max());
    channel->peer = peer;
    channel->buffer->recv(peer, kProbe, 0, 0);
    const std::lock_guard lock(mutex_);
    channels_.push_back(std::move(channel));
    return *channels_.back();
  }

  // Without its buffer, Gloo forgets what was to be done with it.
  void drop(Channel& channel) noexcept {
    std::unique_ptr<Channel> dropped;
    const std::lock_guard lock(mutex_);
    for (std::unique_ptr<Channel>& each : channels_) {
      if (each.get() != &channel) continue;
      dropped = std::move(each);
      each = std::move(channels_.back());
      channels_.pop_back();
      break;
    }
  }

  // Wakes the waiting threads, which look again at the state. Absent: of all channels.
  void wake(std::optional<int> peer) noexcept {
    const std::lock_guard lock(mutex_);
    for (const auto& channel : channels_) {
      if (peer.value_or(channel->peer) != channel->peer) continue;
      channel->buffer->abortWaitSend();
      channel->buffer->abortWaitRecv();
    }
  }

  template <typename Post>
  Started start(int peer, Post&& post) {
    if (is_aborted_) throw failure("", peer);
    Channel* channel = nullptr;
    std::string trouble;
    try {
      channel = &take(peer);
      post(*channel);
      return std::make_unique<OnChannel>(*this, *channel);
    } catch (const gloo::Exception& error) {
      trouble = without_place(error.what());
    } catch (const gloo::EnforceNotMet& error) {
      // A connection that breaks in the very moment of a write: Gloo has closed the descriptor, and
      // then fails to wait for it to be writable (transport/tcp/pair.cc, sendAsyncMode).
      trouble = without_place(error.what());
    }
    if (channel != nullptr) drop(*channel);
    throw failure(trouble, peer);
  }

  bool wait_once(Channel& channel, Milliseconds limit) const {
    return channel.is_send ? channel.buffer->waitSend(limit) : channel.buffer->waitRecv(limit);
  }
  // A connection that breaks right after its message has arrived wakes the waiter with an error,
  // although the message is complete. Asked again, Gloo returns the message, or throws the same
  // error at once. The second question can itself be woken by wake(), which decides nothing: it is
  // repeated. A timeout leaves nothing to ask for.
  bool is_done_before_the_end(Channel& channel, const gloo::IoException& error) const {
    if (contains(error.what(), "imed out")) return false;
    const Deadline deadline = deadline_in(kLastWords);
    do {
      try {
        if (wait_once(channel, Milliseconds(1))) return true;
      } catch (const std::exception&) {
        return false;
      }
    } while (!is_aborted_ && Deadline::clock::now() < deadline);
    return false;
  }

  void wait(Channel& channel, Deadline deadline) {
    while (true) {
      if (is_aborted_) throw failure("", channel.peer);
      const Milliseconds limit =
          is_lost(channel.peer) ? kLastWords : left_until(deadline) + kBackstop;
      try {
        if (wait_once(channel, limit)) return;
        // Woken without a message: look again which ranks are lost.
      } catch (const gloo::IoException& error) {
        if (is_done_before_the_end(channel, error)) return;
        throw failure(without_place(error.what()), channel.peer);
      } catch (const gloo::Exception& error) {
        throw BackendFailure(Kind::System, channel.peer, "Gloo: " + without_place(error.what()));
      }
    }
  }

  BackendFailure failure(const std::string& text, int peer) const {
    if (is_aborted_ || contains(text, "Application timeout")) return aborted_failure();
    if (contains(text, "imed out"))
      return is_lost(peer) ? PeerEnd{.why = "it is reported lost"}.failure(peer)
                           : lateness_of_peer(peer);
    const std::vector<int> gone = lost_peers();
    if (gone.empty()) return PeerEnd{.why = text}.failure(peer);
    return {Kind::PeerLost, gone.front(),
            "lost the connection to " + describe_ranks(gone) + ": " + text};
  }

  // Gloo does not say which connections are broken, but refuses to use them again.
  std::vector<int> lost_peers() const {
    std::vector<int> gone;
    const Buffer probe = context_->createUnboundBuffer(nullptr, 0);
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      try {
        probe->recv(peer, kProbe, 0, 0);
      } catch (const std::exception&) {
        gone.push_back(peer);
      }
    }
    return gone;
  }

  bool is_lost(int peer) const { return lost_[static_cast<std::size_t>(peer)]; }

  const int rank_;
  const int size_;
  // Destroyed in this order: context (pairs), device, store.
  std::shared_ptr<StoreForGloo> store_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::Context> context_;

  std::atomic<bool> is_aborted_{false};
  std::vector<std::atomic<bool>> lost_;

  std::mutex mutex_;  // of both
  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<std::vector<Channel*>> idle_;  // by peer
};

std::unique_ptr<GlooMesh> make_gloo_mesh(const BackendContext& context) {
  try {
    return std::make_unique<GlooMesh>(context);
  } catch (const WorkerError&) {
    throw;  // the store's
  } catch (const BackendFailure&) {
    throw;  // no thread
  } catch (const gloo::Exception& error) {
    const std::string text = without_place(error.what());
    const bool is_timeout = contains(text, "imed out") || contains(text, "imeout");
    throw BackendFailure(is_timeout ? Kind::Timeout : Kind::PeerLost, std::nullopt,
                         "cannot connect all ranks: " + text);
  } catch (const std::exception& error) {
    throw BackendFailure(Kind::System, std::string("cannot connect all ranks: ") + error.what());
  }
}

}  // namespace

std::string gloo_build() { return DRUN_GLOO_BUILD; }

std::unique_ptr<Backend> connect_gloo(const BackendContext& context) {
  std::unique_ptr<GlooMesh> gloo = make_gloo_mesh(context);
  // Messages that Gloo carries would need a thread each: a timed wait closes its connections.
  std::unique_ptr<Mesh> messages = make_tcp_mesh(context);
  gloo->forget_keys();  // each rank has published its other address after Gloo's connections
  return make_mesh_backend(std::move(gloo), context.is_debug, std::move(messages));
}

}  // namespace drun::worker

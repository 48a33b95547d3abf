#include "worker_lib/gloo/gloo_mesh.h"

#include <gloo/common/logging.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "worker_lib/base/deadline.h"
#include "worker_lib/base/process.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/gloo/awake_device.h"
#include "worker_lib/gloo/gloo_ends.h"
#include "worker_lib/gloo/store_for_gloo.h"

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
constexpr GlooMesh::Slot kProbe = std::uint64_t{0xFF} << 56;

// "[/build/gloo/x.cc:12] Connection closed" -> "Connection closed".
std::string without_place(std::string_view text) {
  const std::size_t end = text.rfind('[', 0) == 0 ? text.find("] ") : std::string_view::npos;
  return std::string(end == std::string_view::npos ? text : text.substr(end + 2));
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

std::size_t offset_of(const void* data) { return reinterpret_cast<std::size_t>(data); }

}  // namespace

std::string gloo_build() { return DRUN_GLOO_BUILD; }

// Transfers one message at a time. Its buffer is all of memory, with addresses as offsets, so that
// it can be used again. It always waits for a message on its connection that is never sent, so that
// Gloo wakes it when the connection breaks, whatever the state of its real message.
struct GlooMesh::Channel {
  Buffer buffer;
  std::optional<int> peer;  // absent: receives from any
  bool is_send = false;
};

struct GlooMesh::State {
  int rank = 0;
  int size = 1;
  // Destroyed in this order: context (pairs), device, store.
  std::shared_ptr<StoreForGloo> store;
  std::shared_ptr<gloo::transport::Device> device;
  std::shared_ptr<gloo::Context> context;

  std::atomic<bool> is_aborted{false};
  std::vector<std::atomic<bool>> lost;

  std::mutex mutex;  // of both
  std::vector<std::unique_ptr<Channel>> channels;
  std::vector<std::vector<Channel*>> idle;  // by peer; the last: from any

  std::unique_ptr<GlooEnds> ends;  // absent: not asked for

  explicit State(const BackendContext& mesh);
  ~State() {
    ends.reset();
    channels.clear();
    AwakeDevice awake(*device);
    context.reset();
    awake.let_device_end();
    device.reset();
  }

  std::size_t place_of(std::optional<int> peer) const {
    return static_cast<std::size_t>(peer.value_or(size));
  }
  Channel& take(std::optional<int> peer);
  Channel& make(std::optional<int> peer);
  void give_back(Channel& channel);
  void drop(Channel& channel) noexcept;
  template <typename IsMeant>
  void wake(IsMeant&& is_meant);
  template <typename Post>
  Channel& start(std::optional<int> peer, Post&& post);

  bool is_lost(const Channel& channel) const;
  std::optional<int> wait_once(Channel& channel, Milliseconds limit);
  std::optional<int> done_before_the_end(Channel& channel, const gloo::IoException& error);
  int wait(Channel& channel, Deadline deadline);
  BackendFailure failure(const std::string& text, std::optional<int> peer);
  std::vector<int> lost_peers();
};

GlooMesh::State::State(const BackendContext& mesh)
    : rank(mesh.rank),
      size(mesh.size),
      lost(static_cast<std::size_t>(mesh.size)),
      idle(static_cast<std::size_t>(mesh.size) + 1) {
  ignore_default_sigpipe();
  gloo::transport::tcp::attr attributes;
  attributes.hostname = mesh.address;
  {
    const SignalsBlocked blocked;  // inherited by Gloo's thread
    device = gloo::transport::tcp::CreateDevice(attributes);
  }
  store = std::make_shared<StoreForGloo>(mesh.store, mesh.deadline);
  auto connecting = std::make_shared<gloo::rendezvous::Context>(rank, size);
  connecting->setTimeout(left_until(mesh.deadline));
  connect_full_mesh(*connecting, store, device);
  context = std::move(connecting);
  if (mesh.is_lookout) ends = std::make_unique<GlooEnds>(context, kProbe);
}

GlooMesh::Channel& GlooMesh::State::make(std::optional<int> peer) {
  auto channel = std::make_unique<Channel>();
  channel->buffer = context->createUnboundBuffer(nullptr, std::numeric_limits<std::size_t>::max());
  channel->peer = peer;
  if (peer) channel->buffer->recv(*peer, kProbe, 0, 0);
  const std::lock_guard lock(mutex);
  channels.push_back(std::move(channel));
  return *channels.back();
}

GlooMesh::Channel& GlooMesh::State::take(std::optional<int> peer) {
  {
    const std::lock_guard lock(mutex);
    std::vector<Channel*>& waiting = idle[place_of(peer)];
    if (!waiting.empty()) {
      Channel& channel = *waiting.back();
      waiting.pop_back();
      return channel;
    }
  }
  return make(peer);
}

void GlooMesh::State::give_back(Channel& channel) {
  const std::lock_guard lock(mutex);
  idle[place_of(channel.peer)].push_back(&channel);
}

// Without its buffer, Gloo forgets what was to be done with it.
void GlooMesh::State::drop(Channel& channel) noexcept {
  std::unique_ptr<Channel> dropped;
  const std::lock_guard lock(mutex);
  for (std::unique_ptr<Channel>& each : channels) {
    if (each.get() != &channel) continue;
    dropped = std::move(each);
    each = std::move(channels.back());
    channels.pop_back();
    break;
  }
}

// Wakes the waiting threads, which look again at the state.
template <typename IsMeant>
void GlooMesh::State::wake(IsMeant&& is_meant) {
  const std::lock_guard lock(mutex);
  for (const auto& channel : channels) {
    if (!is_meant(*channel)) continue;
    channel->buffer->abortWaitSend();
    channel->buffer->abortWaitRecv();
  }
}

template <typename Post>
GlooMesh::Channel& GlooMesh::State::start(std::optional<int> peer, Post&& post) {
  if (is_aborted) throw failure("", peer);
  Channel* channel = nullptr;
  std::string trouble;
  try {
    channel = &take(peer);
    post(*channel);
    return *channel;
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

bool GlooMesh::State::is_lost(const Channel& channel) const {
  if (channel.peer) return lost[static_cast<std::size_t>(*channel.peer)];
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank && !lost[static_cast<std::size_t>(peer)]) return false;
  }
  return true;
}

std::optional<int> GlooMesh::State::wait_once(Channel& channel, Milliseconds limit) {
  int peer = 0;
  const bool is_done = channel.is_send ? channel.buffer->waitSend(&peer, limit)
                                       : channel.buffer->waitRecv(&peer, limit);
  return is_done ? std::optional<int>(peer) : std::nullopt;
}

// A connection that breaks right after its message has arrived wakes the waiter with an error,
// although the message is complete. Asked again, Gloo returns the message, or throws the same error
// at once. The second question can itself be woken by wake(), which decides nothing: it is
// repeated. A timeout leaves nothing to ask for.
std::optional<int> GlooMesh::State::done_before_the_end(Channel& channel,
                                                        const gloo::IoException& error) {
  if (contains(error.what(), "imed out")) return std::nullopt;
  const Deadline deadline = deadline_in(kLastWords);
  do {
    try {
      if (const std::optional<int> peer = wait_once(channel, Milliseconds(1))) return peer;
    } catch (const std::exception&) {
      return std::nullopt;
    }
  } while (!is_aborted && Deadline::clock::now() < deadline);
  return std::nullopt;
}

int GlooMesh::State::wait(Channel& channel, Deadline deadline) {
  while (true) {
    if (is_aborted) throw failure("", channel.peer);
    const Milliseconds limit = is_lost(channel) ? kLastWords : left_until(deadline) + kBackstop;
    try {
      if (const std::optional<int> peer = wait_once(channel, limit)) return *peer;
      // Woken without a message: look again which ranks are lost.
    } catch (const gloo::IoException& error) {
      if (const std::optional<int> peer = done_before_the_end(channel, error)) return *peer;
      throw failure(without_place(error.what()), channel.peer);
    } catch (const gloo::Exception& error) {
      throw BackendFailure(Kind::System, channel.peer, "Gloo: " + without_place(error.what()));
    }
  }
}

BackendFailure GlooMesh::State::failure(const std::string& text, std::optional<int> peer) {
  if (is_aborted || contains(text, "Application timeout")) {
    return {Kind::Broken, std::nullopt, "another operation of this rank has failed"};
  }
  const std::string who = peer ? "rank " + std::to_string(*peer) : "the others";
  if (contains(text, "imed out")) {
    const bool has_ended = peer && lost[static_cast<std::size_t>(*peer)];
    if (has_ended) return {Kind::PeerLost, peer, who + " ended before it had done its part", true};
    return {Kind::Timeout, peer,
            who + " did not do " + (peer ? "its" : "their") +
                " part in time; run with DRUN_DEBUG=1 to learn which rank calls something else"};
  }
  const std::vector<int> gone = lost_peers();
  if (gone.empty()) return {Kind::PeerLost, peer, "lost the connection to " + who + ": " + text};
  return {Kind::PeerLost, gone.front(),
          "lost the connection to " + describe_ranks(gone) + ": " + text};
}

// Gloo does not say which connections are broken, but refuses to use them again.
std::vector<int> GlooMesh::State::lost_peers() {
  std::vector<int> gone;
  const Buffer probe = context->createUnboundBuffer(nullptr, 0);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    try {
      probe->recv(peer, kProbe, 0, 0);
    } catch (const std::exception&) {
      gone.push_back(peer);
    }
  }
  return gone;
}

GlooMesh::GlooMesh(const BackendContext& context) {
  try {
    state_ = std::make_unique<State>(context);
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
    throw BackendFailure(Kind::System, std::nullopt,
                         std::string("cannot connect all ranks: ") + error.what());
  }
}

GlooMesh::~GlooMesh() = default;

int GlooMesh::rank() const { return state_->rank; }
int GlooMesh::size() const { return state_->size; }

// One message on its channel.
class GlooMesh::OnChannel final : public Message {
 public:
  OnChannel(State& state, Channel& channel) : state_(state), channel_(&channel) {}
  OnChannel(const OnChannel&) = delete;
  OnChannel& operator=(const OnChannel&) = delete;
  ~OnChannel() override {
    if (channel_ != nullptr) state_.drop(*channel_);
  }
  int wait(Deadline deadline) override {
    const int peer = state_.wait(*channel_, deadline);
    state_.give_back(*std::exchange(channel_, nullptr));
    return peer;
  }

 private:
  State& state_;
  Channel* channel_;
};

Mesh::Started GlooMesh::send(int to, Slot slot, const void* data, std::size_t size_bytes) {
  return std::make_unique<OnChannel>(*state_, state_->start(to, [&](Channel& channel) {
    channel.is_send = true;
    channel.buffer->send(to, slot, offset_of(data), size_bytes);
  }));
}

Mesh::Started GlooMesh::recv(int from, Slot slot, void* data, std::size_t size_bytes) {
  return std::make_unique<OnChannel>(*state_, state_->start(from, [&](Channel& channel) {
    channel.is_send = false;
    channel.buffer->recv(from, slot, offset_of(data), size_bytes);
  }));
}

// Gloo's operations cannot be canceled, and closing connections wakes no thread: each is woken
// here.
void GlooMesh::abort() noexcept {
  if (state_->is_aborted.exchange(true)) return;
  if (state_->ends) state_->ends->stop();
  state_->wake([](const Channel&) { return true; });
  const AwakeDevice awake(*state_->device);
  try {
    state_->context->closeConnections();
  } catch (const std::exception&) {
    // Closed already, then.
  }
}

void GlooMesh::tell_lost(int rank) noexcept {
  if (rank < 0 || rank >= state_->size) return;
  state_->lost[static_cast<std::size_t>(rank)] = true;
  state_->wake([&](const Channel& channel) { return channel.peer.value_or(rank) == rank; });
}

std::vector<Lifeline> GlooMesh::lifelines() const {
  return state_->ends ? state_->ends->lifelines() : std::vector<Lifeline>();
}

}  // namespace drun::worker

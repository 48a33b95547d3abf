#include "worker_lib/nccl/messages.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "worker_lib/base/deadline.h"
#include "worker_lib/base/signature.h"

namespace drun::worker {
namespace {

using Kind = WorkerError::Kind;

ConstElements data_of(const MessageCall& message) {
  return message.is_send ? message.outgoing : message.incoming;
}

// What one side of a message tells the other.
struct Compared {
  bool is_send = false;
  int peer = 0;
  std::string key;
  Signature signature{};
};

void publish(KeyStore& store, const Compared& mine, Deadline deadline) {
  const char* const bytes = reinterpret_cast<const char*>(&mine.signature);
  store.set(mine.key, std::string(bytes, sizeof mine.signature), left_until(deadline));
}

void compare(KeyStore& store, const Compared& mine, Deadline deadline) {
  const std::string told = store.get(mine.key, left_until(deadline));
  Signature theirs{};
  if (told.size() == sizeof theirs) std::memcpy(&theirs, told.data(), sizeof theirs);
  if (theirs == mine.signature) return;
  throw BackendFailure(Kind::Mismatch, mine.peer,
                       "rank " + std::to_string(mine.peer) + " sends " + describe(theirs) +
                           ", this rank receives " + describe(mine.signature));
}

}  // namespace

P2P p2p_of(const MessageCall& message, int peer) {
  const ConstElements data = data_of(message);
  return {.is_send = message.is_send,
          .data = const_cast<void*>(data.data),  // only read if it is sent
          .count = data.count,
          .type = data.type,
          .peer = peer};
}

NcclMessages::Channel& NcclMessages::channel(int peer) {
  const std::lock_guard lock(mutex_);
  return channels_.try_emplace(peer, lines_.stop()).first->second;
}

std::string NcclMessages::name(int peer) const {
  const auto [low, high] = std::minmax(lines_.context().rank, peer);
  return "pair/" + std::to_string(low) + "-" + std::to_string(high);
}

Event NcclMessages::point_of(const MessageCall& message) {
  const ConstElements data = data_of(message);
  return Event(lines_.gpu(data.gpu), static_cast<cuda::Stream>(data.stream));
}

std::shared_ptr<StartQueue::Operation> NcclMessages::start(
    const std::vector<MessageCall>& messages) {
  const int peer = messages.front().peer.value();
  const int own = lines_.context().rank;
  Channel& channel = this->channel(peer);
  std::vector<P2P> p2p;
  auto after = std::make_shared<std::vector<Event>>();
  for (const MessageCall& message : messages) {
    p2p.push_back(p2p_of(message, own < peer ? 1 : 0));
    after->push_back(point_of(message));
  }
  const bool is_empty =
      std::all_of(p2p.begin(), p2p.end(), [](const P2P& each) { return each.count == 0; });
  const auto issue_now = [this, &channel, peer, own, is_empty, p2p = std::move(p2p), after,
                          compare_all = comparison_of(messages, "pair")](Deadline deadline) {
    const Awaited awaited{.peer = peer, .deadline = deadline};
    if (!is_empty && !channel.line) {
      channel.line = lines_.connect(name(peer), std::min(own, peer),
                                    {.rank = own < peer ? 0 : 1, .size = 2}, awaited);
      channel.is_connected = true;
    }
    compare_all(deadline);
    if (is_empty) return StartQueue::Issued{};
    Event end = channel.line->start(*after, awaited, [&](nccl::Comm comm, cuda::Stream stream) {
      return issue(p2p, comm, stream);
    });
    return StartQueue::Issued{.line = channel.line, .end = std::move(end)};
  };
  auto operation = std::make_shared<StartQueue::Operation>(issue_now, Awaited{.peer = peer});
  channel.queue.add(operation);
  // Connecting and comparing wait for the other rank.
  if (channel.is_connected && !lines_.context().is_debug) {
    channel.queue.issue(deadline_in(std::chrono::hours(24 * 365)));
  }
  return operation;
}

NcclMessages::Comparison NcclMessages::comparison_of(const std::vector<MessageCall>& messages,
                                                     const char* kind) {
  if (!lines_.context().is_debug) return [](Deadline) {};
  std::vector<Compared> all;
  const std::lock_guard lock(mutex_);
  for (const MessageCall& message : messages) {
    const int peer = message.peer.value();
    const auto [from, to] = message.is_send ? std::pair(lines_.context().rank, peer)
                                            : std::pair(peer, lines_.context().rank);
    const std::string direction =
        "nccl/" + std::string(kind) + "/" + std::to_string(from) + "-" + std::to_string(to);
    const ConstElements data = data_of(message);
    all.push_back({.is_send = message.is_send,
                   .peer = peer,
                   .key = direction + "/" + std::to_string(compared_[direction]++),
                   .signature = signature_of(data.type, data.count)});
  }
  return [all = std::move(all), store = lines_.context().store](Deadline deadline) {
    for (const Compared& each : all)
      if (each.is_send) publish(*store, each, deadline);
    for (const Compared& each : all)
      if (!each.is_send) compare(*store, each, deadline);
  };
}

}  // namespace drun::worker

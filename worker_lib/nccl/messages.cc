#include "worker_lib/nccl/messages.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "worker_lib/base/deadline.h"

namespace drun::worker {

NcclMessages::Channel& NcclMessages::channel(int peer) {
  const std::lock_guard lock(mutex_);
  return channels_.try_emplace(peer, communicators_.stop()).first->second;
}

std::string NcclMessages::name(int peer) const {
  const auto [low, high] = std::minmax(communicators_.context().rank, peer);
  return "pair/" + std::to_string(low) + "-" + std::to_string(high);
}

std::shared_ptr<StartQueue::Operation> NcclMessages::together(
    const std::vector<MessageCall>& messages, const char* kind, const Awaited& awaited,
    std::optional<int> rank_of_peer, Connected connected) {
  std::vector<MessageCall> issued = messages;
  auto after = std::make_shared<std::vector<Event>>();
  for (MessageCall& each : issued) {
    const ConstElements data = each.data();
    after->emplace_back(communicators_.gpu(data.gpu), static_cast<cuda::Stream>(data.stream));
    if (rank_of_peer) each.peer = rank_of_peer;
  }
  return std::make_shared<StartQueue::Operation>(
      [this, awaited, issued = std::move(issued), after, connected = std::move(connected),
       all = compared(messages, kind)](Deadline deadline) {
        Awaited now = awaited;
        now.deadline = deadline;
        now.since = coarse_now();
        const std::shared_ptr<Communicator> communicator = connected(now);
        compare(all, deadline);
        if (!communicator) return StartQueue::Issued{};
        Event end = communicator->start(*after, now, [&](nccl::Comm comm, cuda::Stream stream) {
          return issue(issued, comm, stream);
        });
        return StartQueue::Issued{.communicator = communicator, .end = std::move(end)};
      },
      awaited, communicators_.context().is_debug);
}

std::shared_ptr<StartQueue::Operation> NcclMessages::start(
    const std::vector<MessageCall>& messages) {
  const int peer = messages.front().peer.value();
  const int own = communicators_.context().rank;
  Channel& channel = this->channel(peer);
  const bool is_empty = std::all_of(messages.begin(), messages.end(),
                                    [](const MessageCall& each) { return each.data().count == 0; });
  const auto connected = [this, &channel, peer, own, is_empty](const Awaited& awaited) {
    if (is_empty) return std::shared_ptr<Communicator>();
    if (!channel.communicator) {
      channel.communicator = communicators_.connect(
          name(peer), std::min(own, peer), {.rank = own < peer ? 0 : 1, .size = 2}, awaited);
      channel.is_connected = true;
    }
    return channel.communicator;
  };
  auto operation = together(messages, "pair", {.peer = peer}, own < peer ? 1 : 0, connected);
  channel.queue.add(operation);
  // Connecting and comparing wait for the other rank.
  if (channel.is_connected && !communicators_.context().is_debug) channel.queue.issue(*operation);
  return operation;
}

std::vector<NcclMessages::Compared> NcclMessages::compared(const std::vector<MessageCall>& messages,
                                                           const char* kind) {
  std::vector<Compared> all;
  if (!communicators_.context().is_debug) return all;
  all.reserve(messages.size());
  const std::lock_guard lock(mutex_);
  for (const MessageCall& message : messages) {
    const int peer = message.peer.value();
    const int own = communicators_.context().rank;
    const std::string direction = "nccl/" + std::string(kind) + "/" +
                                  std::to_string(message.is_send ? own : peer) + "-" +
                                  std::to_string(message.is_send ? peer : own);
    const ConstElements data = message.data();
    all.push_back({.is_send = message.is_send,
                   .peer = peer,
                   .key = direction + "/" + std::to_string(numbers_[direction]++),
                   .signature = signature_of(data.type, data.count)});
  }
  return all;
}

void NcclMessages::compare(const std::vector<Compared>& all, Deadline deadline) const {
  if (all.empty()) return;
  KeyStore& store = *communicators_.context().store;
  for (const Compared& mine : all) {
    if (!mine.is_send) continue;
    const char* const bytes = reinterpret_cast<const char*>(&mine.signature);
    store.set(mine.key, std::string(bytes, sizeof mine.signature), left_until(deadline));
  }
  for (const Compared& mine : all) {
    if (mine.is_send) continue;
    const Awaited awaited{.peer = mine.peer, .deadline = deadline};
    const std::string told = communicators_.read(mine.key, mine.peer, awaited, "compare a message");
    Signature theirs{};
    if (told.size() == sizeof theirs) std::memcpy(&theirs, told.data(), sizeof theirs);
    if (theirs != mine.signature) throw message_mismatch(mine.peer, theirs, mine.signature);
    store.remove(mine.key, left_until(deadline));
  }
}

}  // namespace drun::worker

// edge. The common part of meshes without a thread: one mutex protects all messages, which make
// progress while some thread of this rank waits for one of them, or asks for its state.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "drun/backend.h"
#include "worker_lib/base/cores.h"
#include "worker_lib/mesh/mesh.h"
#include "worker_lib/mesh/message.h"

namespace drun::worker {

// Whether each rank of this node has a core, so that a waiting one may poll without yielding.
inline bool has_own_core(const BackendContext& context) {
  const int node = context.node_of[static_cast<std::size_t>(context.rank)];
  return std::count(context.node_of.begin(), context.node_of.end(), node) <=
         usable_cores(online_cores());
}

// `Send` and `Receive` derive from PendingSend and PendingReceive. `Derived` is the mesh. It has
// these functions, called with the lock held, where Message is either of both:
//
//   void start(Message&)                  throws if it will not be done
//   void check(const Message&) const      throws why one that is not done will not be done
//   void give_up(Message&) noexcept       forgets one that is not done
//   void look(Lock&)                      handles what has arrived, without waiting
//   bool drive(Lock&, std::optional<int> peer, IsOver&&, Deadline)
//                                         makes progress until is_over() returns true or throws, or
//                                         the deadline has passed: false. `peer`: the rank that is
//                                         waited for; absent: any
//   BackendFailure lateness_of(std::optional<int> peer) const
template <typename Derived, typename Send, typename Receive>
class DrivenMesh : public Mesh {
 public:
  Started send(int to, Slot slot, const void* data, std::size_t size_bytes) final {
    Send message;
    message.to = to;
    message.slot = slot;
    message.data = static_cast<const char*>(data);
    message.size_bytes = size_bytes;
    return started(std::move(message));
  }
  Started recv(int from, Slot slot, void* data, std::size_t size_bytes) final {
    return receive(from, slot, data, size_bytes, {});
  }
  Started recv_any(Slot slot, void* data, std::size_t size_bytes, ClaimSide claim) final {
    return receive(std::nullopt, slot, data, size_bytes, claim);
  }
  bool keeps_deadlines() const final { return true; }

 protected:
  using Lock = std::unique_lock<std::mutex>;

  std::mutex mutex_;

 private:
  template <typename Message>
  class InMesh final : public Transfer {
   public:
    InMesh(Derived& mesh, Message message) : mesh_(mesh), message_(std::move(message)) {
      const Lock lock(mutex());
      mesh_.start(message_);
      is_over_ = message_.is_done;
    }
    ~InMesh() override {
      if (is_over_) return;
      const Lock lock(mutex());
      if (!message_.is_done) mesh_.give_up(message_);
    }
    InMesh(const InMesh&) = delete;
    InMesh& operator=(const InMesh&) = delete;

    int finish(Deadline deadline) override {
      if (is_over_) return *message_.peer();
      Lock lock(mutex());
      if (!mesh_.drive(
              lock, message_.peer(), [this] { return is_done_or_fails(); }, deadline))
        throw mesh_.lateness_of(message_.peer());
      is_over_ = true;
      return *message_.peer();
    }
    std::optional<bool> is_done() override {
      if (is_over_) return true;
      Lock lock(mutex());
      if (!has_ended()) mesh_.look(lock);
      return has_ended();
    }

   private:
    std::mutex& mutex() const { return static_cast<DrivenMesh&>(mesh_).mutex_; }
    bool is_done_or_fails() const {
      if (!message_.is_done) mesh_.check(message_);
      return message_.is_done;
    }
    bool has_ended() const {
      try {
        return is_done_or_fails();
      } catch (const BackendFailure&) {
        return true;
      }
    }

    Derived& mesh_;
    Message message_;
    bool is_over_ = false;  // the mesh has no pointer to the message any more
  };

  template <typename Message>
  Started started(Message message) {
    return std::make_unique<InMesh<Message>>(static_cast<Derived&>(*this), std::move(message));
  }
  Started receive(std::optional<int> from, Slot slot, void* data, std::size_t room_bytes,
                  ClaimSide claim) {
    Receive message;
    message.from = from;
    message.slot = slot;
    message.data = static_cast<char*>(data);
    message.room_bytes = room_bytes;
    message.claim = claim;
    return started(std::move(message));
  }
};

}  // namespace drun::worker

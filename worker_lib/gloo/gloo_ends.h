// edge. Detects the ends of other ranks' connections while no operation waits for them. Gloo
// reports an end only to waiting threads, so a thread here always waits for a message from each
// rank that is never sent.
//
// Owner:   the mesh. Uses the mesh's context until it is destroyed.
// Thread:  stop: any. A separate thread waits in Gloo.
// Errors:  none; the end of a connection that cannot be watched is not reported.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "drun/backend.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_lib/base/threads.h"

namespace drun::worker {

class GlooEnds {
 public:
  // `slot`: one that is never used for sending.
  GlooEnds(std::shared_ptr<gloo::Context> context, std::uint64_t slot)
      : context_(std::move(context)), slot_(slot) {
    for (int rank = 0; rank < context_->size; ++rank) {
      if (rank != context_->rank) watched_.push_back({rank, UniqueFd(eventfd(0, EFD_CLOEXEC))});
    }
    for (const Watched& each : watched_) lines_.push_back({each.has_ended.get(), each.rank});
    thread_ = start_thread([this] { run(); });
  }
  ~GlooEnds() {
    stop();
    thread_.join();
  }
  GlooEnds(const GlooEnds&) = delete;
  GlooEnds& operator=(const GlooEnds&) = delete;

  // One per other rank. Owned by this.
  const std::vector<Lifeline>& lifelines() const { return lines_; }

  // Call it before this rank closes its connections, which is not the end of another rank.
  void stop() noexcept {
    is_stopping_ = true;
    const std::lock_guard lock(mutex_);
    if (probe_) probe_->abortWaitRecv();
  }

 private:
  struct Watched {
    int rank;
    UniqueFd has_ended;
  };
  using Probe = std::shared_ptr<gloo::transport::UnboundBuffer>;

  void run() noexcept {
    try {
      std::vector<Watched*> alive;
      for (Watched& each : watched_) alive.push_back(&each);
      while (!is_stopping_ && !alive.empty()) {
        wait_for_a_break(alive);
        const auto ended =
            std::erase_if(alive, [this](const Watched* each) { return tell_if_broken(*each); });
        if (ended == 0) return;  // Gloo has failed without reporting which rank
      }
    } catch (const std::exception&) {
      // No memory.
    }
  }

  void wait_for_a_break(const std::vector<Watched*>& alive) {
    const Probe probe = new_probe();
    try {
      for (const Watched* each : alive) probe->recv(each->rank, slot_, 0, 0);
      // A wait that times out would close all connections.
      probe->waitRecv(nullptr, std::chrono::hours(24 * 365));
    } catch (const std::exception&) {
      // The connection has ended.
    }
    const std::lock_guard lock(mutex_);
    probe_ = nullptr;
  }

  // A broken connection is not used again.
  bool tell_if_broken(const Watched& each) {
    if (is_stopping_) return true;
    try {
      new_probe()->recv(each.rank, slot_, 0, 0);
      return false;
    } catch (const std::exception&) {
      const std::uint64_t one = 1;
      static_cast<void>(write(each.has_ended.get(), &one, sizeof one) < 0);
      return true;
    }
  }

  // Woken by stop, which sets a flag before.
  Probe new_probe() {
    Probe probe = context_->createUnboundBuffer(nullptr, 0);
    const std::lock_guard lock(mutex_);
    if (is_stopping_) probe->abortWaitRecv();
    probe_ = probe;
    return probe;
  }

  const std::shared_ptr<gloo::Context> context_;
  const std::uint64_t slot_;
  std::vector<Watched> watched_;
  std::vector<Lifeline> lines_;
  std::atomic<bool> is_stopping_{false};
  std::mutex mutex_;
  Probe probe_;
  std::thread thread_;
};

}  // namespace drun::worker

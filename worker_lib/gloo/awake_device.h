// edge. Keeps the thread of a Gloo device awake during its lifetime.
//
// Why:     closing a connection, and the device's destructor, wait until that thread returns from
//          epoll, which takes up to 10 ms if it is idle (transport/tcp/loop.cc): a second for a
//          hundred connections.
// Owner:   the caller, on its stack; the device outlives it unless let_device_end() was called.
// Thread:  any except the device's own.
// Errors:  none; without a free descriptor it has no effect, and closing takes longer.
#pragma once

#include <gloo/transport/tcp/device.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <exception>
#include <memory>

#include "rendezvous/base/unique_fd.h"

namespace drun::worker {

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

}  // namespace drun::worker

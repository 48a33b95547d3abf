// edge. Adapts the group's store to Gloo, whose ranks exchange their addresses through it.
//
// Blocks:  until the deadline.   Errors: WorkerError, as KeyStore's.
// Thread:  one at a time.        Owner:  the mesh, for as long as its context.
#pragma once

#include <gloo/rendezvous/store.h>
#include <gloo/transport/device.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "drun/key_store.h"
#include "worker_lib/base/deadline.h"

namespace drun::worker {

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
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

 private:
  std::shared_ptr<KeyStore> store_;
  Deadline deadline_;
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

}  // namespace drun::worker

// A client of a store, for tests of what stays in the store.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "drun/key_store.h"

namespace drun::test {

// Knows which keys it has set and not removed.
class OwnKeys final : public KeyStore {
 public:
  explicit OwnKeys(std::uint16_t port) : store_(connect_key_store("127.0.0.1", port, kPatience)) {}
  void set(const std::string& key, const std::string& value, Milliseconds timeout) override {
    keys_.insert(key);
    store_->set(key, value, timeout);
  }
  std::string get(const std::string& key, Milliseconds timeout) override {
    return store_->get(key, timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t delta, Milliseconds timeout) override {
    keys_.insert(key);
    return store_->add(key, delta, timeout);
  }
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired, Milliseconds timeout) override {
    keys_.insert(key);
    return store_->compare_set(key, expected, desired, timeout);
  }
  void wait(const std::vector<std::string>& keys, Milliseconds timeout) override {
    store_->wait(keys, timeout);
  }
  bool has(const std::string& key, Milliseconds timeout) override {
    return store_->has(key, timeout);
  }
  void remove(const std::string& key, Milliseconds timeout) override {
    store_->remove(key, timeout);
    if (!store_->has(key, timeout)) keys_.erase(key);
  }
  const std::set<std::string>& keys() const { return keys_; }
  // Those that no other rank has removed.
  std::set<std::string> left() const {
    std::set<std::string> left;
    for (const std::string& key : keys_)
      if (store_->has(key, kPatience)) left.insert(key);
    return left;
  }

 private:
  static constexpr std::chrono::seconds kPatience{20};
  const std::shared_ptr<KeyStore> store_;
  std::set<std::string> keys_;
};

}  // namespace drun::test

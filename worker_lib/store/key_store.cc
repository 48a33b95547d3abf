#include "drun/key_store.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "drun/error.h"
#include "rendezvous/base/text.h"
#include "worker_lib/base/deadline.h"

namespace drun {
namespace {

class MemoryKeyStore final : public KeyStore {
 public:
  void set(const std::string& key, const std::string& value, Milliseconds) override {
    const std::lock_guard lock(mutex_);
    put(key, value);
  }
  std::string get(const std::string& key, Milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    await(lock, {key}, timeout);
    return values_.at(key);
  }
  std::int64_t add(const std::string& key, std::int64_t delta, Milliseconds) override {
    const std::lock_guard lock(mutex_);
    std::int64_t value = leading_number<std::int64_t>(values_[key]).value_or(0);
    __builtin_add_overflow(value, delta, &value);  // wraps around, as a store's server does
    put(key, std::to_string(value));
    return value;
  }
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired, Milliseconds) override {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    const bool is_missing = found == values_.end();
    if (is_missing ? !expected.empty() : found->second != expected) {
      return is_missing ? expected : found->second;
    }
    put(key, desired);
    return desired;
  }
  void wait(const std::vector<std::string>& keys, Milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    await(lock, keys, timeout);
  }
  bool has(const std::string& key, Milliseconds) override {
    const std::lock_guard lock(mutex_);
    return values_.count(key) > 0;
  }
  void remove(const std::string& key, Milliseconds) override {
    const std::lock_guard lock(mutex_);
    values_.erase(key);
  }

 private:
  void put(const std::string& key, const std::string& value) {
    values_[key] = value;
    changed_.notify_all();
  }
  void await(std::unique_lock<std::mutex>& lock, const std::vector<std::string>& keys,
             Milliseconds timeout) {
    const auto deadline = worker::deadline_in(timeout);
    for (const std::string& key : keys) {
      if (changed_.wait_until(lock, deadline, [&] { return values_.count(key) > 0; })) continue;
      throw WorkerError({.kind = WorkerError::Kind::Timeout,
                         .message = "no rank set \"" + key + "\" in the store within " +
                                    std::to_string(timeout.count()) + " ms"});
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

class PrefixKeyStore final : public KeyStore {
 public:
  PrefixKeyStore(std::string prefix, std::shared_ptr<KeyStore> store)
      : prefix_(std::move(prefix) + "/"), store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value, Milliseconds timeout) override {
    store_->set(prefix_ + key, value, timeout);
  }
  std::string get(const std::string& key, Milliseconds timeout) override {
    return store_->get(prefix_ + key, timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t delta, Milliseconds timeout) override {
    return store_->add(prefix_ + key, delta, timeout);
  }
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired, Milliseconds timeout) override {
    return store_->compare_set(prefix_ + key, expected, desired, timeout);
  }
  void wait(const std::vector<std::string>& keys, Milliseconds timeout) override {
    std::vector<std::string> prefixed;
    prefixed.reserve(keys.size());
    for (const std::string& key : keys) prefixed.push_back(prefix_ + key);
    store_->wait(prefixed, timeout);
  }
  bool has(const std::string& key, Milliseconds timeout) override {
    return store_->has(prefix_ + key, timeout);
  }
  void remove(const std::string& key, Milliseconds timeout) override {
    store_->remove(prefix_ + key, timeout);
  }

 private:
  std::string prefix_;
  std::shared_ptr<KeyStore> store_;
};

}  // namespace

std::shared_ptr<KeyStore> make_memory_key_store() { return std::make_shared<MemoryKeyStore>(); }

std::shared_ptr<KeyStore> make_prefix_key_store(std::string prefix,
                                                std::shared_ptr<KeyStore> store) {
  return std::make_shared<PrefixKeyStore>(std::move(prefix), std::move(store));
}

}  // namespace drun

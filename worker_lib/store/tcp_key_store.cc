// KeyStore over the client of the TCPStore protocol.
#include <mutex>
#include <span>
#include <utility>

#include "drun/error.h"
#include "drun/key_store.h"
#include "rendezvous/store/client.h"

namespace drun {
namespace {

[[noreturn]] void raise(const Error& error) {
  const bool is_timeout = error.code == ErrorCode::Timeout;
  throw WorkerError({.kind = is_timeout ? WorkerError::Kind::Timeout : WorkerError::Kind::Store,
                     .message = error.message});
}

// Where the answer itself is late: nobody was being waited for but the store.
[[noreturn]] void raise_silent(const Error& error) {
  throw WorkerError({.kind = WorkerError::Kind::Store, .message = error.message});
}

class TcpKeyStore final : public KeyStore {
 public:
  explicit TcpKeyStore(StoreClient client) : client_(std::move(client)) {}

  void set(const std::string& key, const std::string& value, Milliseconds timeout) override {
    const std::lock_guard lock(mutex_);
    client_.set_timeout(timeout);
    if (const auto done = client_.set(key, value); !done) raise_silent(done.error());
  }
  std::string get(const std::string& key, Milliseconds timeout) override {
    const std::lock_guard lock(mutex_);
    auto value = client_.get(key, timeout);
    if (!value) raise(value.error());
    return *std::move(value);
  }
  std::int64_t add(const std::string& key, std::int64_t delta, Milliseconds timeout) override {
    const std::lock_guard lock(mutex_);
    client_.set_timeout(timeout);
    const auto sum = client_.add(key, delta);
    if (!sum) raise_silent(sum.error());
    return *sum;
  }
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired, Milliseconds timeout) override {
    const std::lock_guard lock(mutex_);
    client_.set_timeout(timeout);
    auto value = client_.compare_set(key, expected, desired);
    if (!value) raise_silent(value.error());
    return *std::move(value);
  }
  void wait(const std::vector<std::string>& keys, Milliseconds timeout) override {
    const std::lock_guard lock(mutex_);
    if (const auto done = client_.wait(keys, timeout); !done) raise(done.error());
  }
  bool has(const std::string& key, Milliseconds timeout) override {
    const std::lock_guard lock(mutex_);
    client_.set_timeout(timeout);
    const auto is_there = client_.check(std::span(&key, 1));
    if (!is_there) raise_silent(is_there.error());
    return *is_there;
  }

 private:
  std::mutex mutex_;
  StoreClient client_;
};

}  // namespace

std::shared_ptr<KeyStore> connect_key_store(const std::string& host, std::uint16_t port,
                                            KeyStore::Milliseconds timeout) {
  StoreClient::Options options;
  options.endpoint = {host, port};
  options.timeout = timeout;
  auto client = StoreClient::connect(options);
  if (!client) raise_silent(client.error());
  // A Python program that hosts this store may be counting its ranks.
  if (const auto count = client->announce(); !count) raise_silent(count.error());
  return std::make_shared<TcpKeyStore>(*std::move(client));
}

}  // namespace drun

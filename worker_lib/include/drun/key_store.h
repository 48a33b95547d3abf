// core. A key-value store that all ranks share. Ranks use it to find each other, and for small
// values such as addresses, flags and counters. The usual one is drun's (or any PyTorch TCPStore)
// at MASTER_ADDR:MASTER_PORT.
//
// Values:  bytes. A missing key counts as 0 for add and as empty for compare_set.
// Limits:  on a TCP store, 8,191 bytes for a key with its prefixes, and 8 MiB for a value.
// Owner:   shared by its users.
// Thread:  any, concurrently. Gets and waits block no other call. On a TCP store, up to three have
//          a connection each; further ones look for their keys every 100 ms.
// Errors:  throws WorkerError: Usage for a key or value over the limit; Timeout if a key of get or
//          wait is not set in time; Store if the store cannot be reached any more or does not
//          respond.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace drun {

class KeyStore {
 public:
  using Milliseconds = std::chrono::milliseconds;

  virtual ~KeyStore() = default;

  virtual void set(const std::string& key, const std::string& value, Milliseconds timeout) = 0;
  // Waits until the key exists.
  virtual std::string get(const std::string& key, Milliseconds timeout) = 0;
  // Returns the sum, which is stored as decimal text.
  virtual std::int64_t add(const std::string& key, std::int64_t delta, Milliseconds timeout) = 0;
  // Stores `desired` if the value is `expected`; returns the value after that.
  virtual std::string compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired, Milliseconds timeout) = 0;
  // Waits until every key has been set.
  virtual void wait(const std::vector<std::string>& keys, Milliseconds timeout) = 0;
  virtual bool has(const std::string& key, Milliseconds timeout) = 0;
  // The key is missing afterwards. Those who still wait for it wait until it is set again.
  virtual void remove(const std::string& key, Milliseconds timeout) = 0;
};

// A client of the store at host:port. Retries until the timeout.
std::shared_ptr<KeyStore> connect_key_store(const std::string& host, std::uint16_t port,
                                            KeyStore::Milliseconds timeout);

// For ranks that are threads of one process (tests).
std::shared_ptr<KeyStore> make_memory_key_store();

// The same store with `prefix` and "/" before every key, as PyTorch's PrefixStore does.
std::shared_ptr<KeyStore> make_prefix_key_store(std::string prefix,
                                                std::shared_ptr<KeyStore> store);

}  // namespace drun

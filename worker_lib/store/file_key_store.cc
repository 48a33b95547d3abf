#include "worker_lib/store/file_key_store.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "drun/error.h"
#include "rendezvous/base/text.h"
#include "worker_lib/base/deadline.h"
#include "worker_lib/store/file_log.h"

namespace drun::worker {
namespace {

using Kind = WorkerError::Kind;
using Clock = std::chrono::steady_clock;

// Keys of the users' begin with "u"; a record of such a key with "d" instead removes it.
const std::string kSize = "size";
const std::string kStale = "stale";
std::string here(int rank) { return "here/" + std::to_string(rank); }
std::string left(int rank) { return "left/" + std::to_string(rank); }

class FileKeyStore final : public KeyStore {
 public:
  FileKeyStore(const FileStoreSpec& spec, Milliseconds timeout) : spec_(spec), log_(spec.path) {
    const Locked locked(*this, deadline_in(timeout));
    const std::string size = std::to_string(spec.size);
    const auto told = values_.find(kSize);
    const bool is_stale = values_.count(kStale) > 0 || values_.count(here(spec.rank)) > 0 ||
                          here_count() >= spec.size ||
                          (told != values_.end() && told->second != size);
    if (is_stale) {
      // Ranks that have not been here before cannot tell by themselves.
      put(kStale, "");
      throw WorkerError({.kind = Kind::Store, .message = stale_message()});
    }
    if (told == values_.end()) put(kSize, size);
    put(here(spec.rank), "");
  }

  ~FileKeyStore() override {
    if (getpid() != process_) return;  // a forked child was never in the group
    try {
      const Locked locked(*this, Clock::now() + std::chrono::seconds(1));
      put(left(spec_.rank), "");
      bool is_last = true;
      for (int rank = 0; rank < spec_.size; ++rank) is_last &= values_.count(left(rank)) > 0;
      if (is_last) log_.remove_file();
    } catch (const std::exception&) {  // then the file remains, which the next run reports
    }
  }

  void set(const std::string& key, const std::string& value, Milliseconds timeout) override {
    const std::lock_guard lock(mutex_);
    const Locked locked(*this, deadline_in(timeout));
    check_fresh();
    put("u" + key, value);
  }
  std::string get(const std::string& key, Milliseconds timeout) override {
    std::string value;
    await({key}, timeout, [&] { value = values_.at("u" + key); });
    return value;
  }
  std::int64_t add(const std::string& key, std::int64_t delta, Milliseconds timeout) override {
    const std::lock_guard lock(mutex_);
    const Locked locked(*this, deadline_in(timeout));
    check_fresh();
    std::int64_t value = 0;
    if (const auto found = values_.find("u" + key); found != values_.end())
      value = leading_number<std::int64_t>(found->second).value_or(0);
    __builtin_add_overflow(value, delta, &value);  // wraps around, as a store's server does
    put("u" + key, std::to_string(value));
    return value;
  }
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired, Milliseconds timeout) override {
    const std::lock_guard lock(mutex_);
    const Locked locked(*this, deadline_in(timeout));
    check_fresh();
    const auto found = values_.find("u" + key);
    const bool is_missing = found == values_.end();
    if (is_missing ? !expected.empty() : found->second != expected) {
      return is_missing ? expected : found->second;
    }
    put("u" + key, desired);
    return desired;
  }
  void wait(const std::vector<std::string>& keys, Milliseconds timeout) override {
    await(keys, timeout, [] {});
  }
  bool has(const std::string& key, Milliseconds timeout) override {
    const std::lock_guard lock(mutex_);
    const Locked locked(*this, deadline_in(timeout));
    check_fresh();
    return values_.count("u" + key) > 0;
  }
  void remove(const std::string& key, Milliseconds timeout) override {
    const std::lock_guard lock(mutex_);
    const Locked locked(*this, deadline_in(timeout));
    check_fresh();
    if (values_.count("u" + key) > 0) put("d" + key, "");
  }

 private:
  // The file is ours, and values_ is what it says.
  class Locked {
   public:
    Locked(FileKeyStore& store, Clock::time_point deadline) : store_(store) {
      store.log_.acquire(deadline, [&store](std::string key, std::string value) {
        store.keep(std::move(key), std::move(value));
      });
    }
    ~Locked() { store_.log_.release(); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

   private:
    FileKeyStore& store_;
  };

  void put(const std::string& key, const std::string& value) {
    log_.append(key, value);
    keep(key, value);
  }
  void keep(std::string key, std::string value) {
    if (key.starts_with("d")) {
      key.front() = 'u';
      values_.erase(key);
    } else {
      values_[std::move(key)] = std::move(value);
    }
  }
  int here_count() const {
    int count = 0;
    for (int rank = 0; rank < spec_.size; ++rank) {
      count += static_cast<int>(values_.count(here(rank)));
    }
    return count;
  }
  std::string stale_message() const {
    return "the file " + spec_.path +
           " is left from an earlier run, or another job uses it: "
           "remove it, or choose another path";
  }
  void check_fresh() const {
    if (values_.count(kStale) > 0) {
      throw WorkerError({.kind = Kind::Store, .message = stale_message()});
    }
  }

  // The first key that is not there yet; empty: all are.
  std::string missing(const std::vector<std::string>& keys, Clock::time_point deadline) {
    const Locked locked(*this, deadline);
    check_fresh();
    for (const std::string& key : keys) {
      if (values_.count("u" + key) == 0) return key.empty() ? "(empty)" : key;
    }
    return "";
  }

  template <typename Then>
  void await(const std::vector<std::string>& keys, Milliseconds timeout, const Then& then) {
    const Clock::time_point deadline = deadline_in(timeout);
    auto pause = Milliseconds(1);
    while (true) {
      std::string key;
      {
        const std::lock_guard lock(mutex_);
        key = missing(keys, std::max(deadline, Clock::now() + Milliseconds(1)));
        if (key.empty()) return then();
      }
      const auto now = Clock::now();
      if (now >= deadline) {
        throw WorkerError({.kind = Kind::Timeout,
                           .message = "no rank set \"" + key + "\" in the store's file " +
                                      spec_.path + " within " + std::to_string(timeout.count()) +
                                      " ms"});
      }
      std::this_thread::sleep_until(std::min(now + pause, deadline));
      pause = std::min(pause * 2, Milliseconds(20));
    }
  }

  const FileStoreSpec spec_;
  const pid_t process_ = getpid();
  std::mutex mutex_;
  FileLog log_;
  std::map<std::string, std::string> values_;
};

}  // namespace

std::shared_ptr<KeyStore> open_file_key_store(const FileStoreSpec& spec,
                                              KeyStore::Milliseconds timeout) {
  return std::make_shared<FileKeyStore>(spec, timeout);
}

}  // namespace drun::worker

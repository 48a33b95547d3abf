// edge. Resolves host names off the event loop: getaddrinfo(3) blocks, in bad cases for minutes.
//
// How:     at most one lookup of a name is under way, on a detached thread; all callers that want
//          the name share it. A lookup cannot be stopped, so it continues after its callers have
//          given up, and its result is kept for a minute for the next caller: a caller with a time
//          limit shorter than the lookup succeeds when it tries again.
// Limits:  kMostThreads threads; more names wait for one of them. kMostNames names.
// Exit:    nothing waits for the threads, neither the io_context nor the end of the process.
// Thread:  Resolver: the io_context's only. LookupThreads: any.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/net/asio.h"

namespace drun::rendezvous {

using Addresses = Result<std::vector<asio::ip::address>>;

// The lookups of one process, or of one test.
class LookupThreads {
 public:
  static constexpr std::size_t kMostThreads = 16;
  static constexpr std::size_t kMostNames = 256;
  static constexpr std::chrono::seconds kKeepResult{60};

  // Blocks. Called on lookup threads, several at a time.
  using LookUp = std::function<Addresses(const std::string& host)>;

  explicit LookupThreads(LookUp look_up, std::size_t most_threads = kMostThreads);

  // Asks the system. Shared by all of this process, as its threads outlive every caller.
  static std::shared_ptr<LookupThreads> of_process();

 private:
  friend class Resolver;
  struct Caller;
  struct State;
  static void work(const std::shared_ptr<State>& state);
  static void post_result(Caller& caller, const Addresses& result);
  static void begin_thread(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;  // kept by the threads
};

class Resolver {
 public:
  using Done = std::function<void(const Addresses&)>;

  Resolver(asio::io_context& io, std::shared_ptr<LookupThreads> threads);
  ~Resolver() { cancel(); }
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // `on_done` is called once, from the loop, unless `cancel` is called first. A second start
  // cancels the first. Errors: Unreachable, with the system's reason.
  void start(const std::string& host, Done on_done);
  void cancel();

 private:
  asio::io_context& io_;
  const std::shared_ptr<LookupThreads> threads_;
  std::shared_ptr<LookupThreads::Caller> caller_;
};

}  // namespace drun::rendezvous

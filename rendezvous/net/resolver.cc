#include "rendezvous/net/resolver.h"

#include <netdb.h>
#include <signal.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace drun::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;

Addresses ask_the_system(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  const int status = ::getaddrinfo(host.c_str(), nullptr, &hints, &first);
  if (status != 0)
    return Error{ErrorCode::Unreachable,
                 status == EAI_SYSTEM ? system_message(errno) : ::gai_strerror(status)};
  std::vector<asio::ip::address> found;
  for (const addrinfo* each = first; each != nullptr; each = each->ai_next) {
    if (each->ai_family != AF_INET && each->ai_family != AF_INET6) continue;
    asio::ip::tcp::endpoint endpoint;
    std::memcpy(endpoint.data(), each->ai_addr, each->ai_addrlen);
    found.push_back(endpoint.address());
  }
  ::freeaddrinfo(first);
  if (found.empty()) return Error{ErrorCode::Unreachable, "the name has no address"};
  return found;
}

}  // namespace

// One start() of a Resolver. `io` is guarded by State::mutex and null once it is canceled;
// `on_done` belongs to the loop's thread.
struct LookupThreads::Caller : std::enable_shared_from_this<Caller> {
  asio::io_context* io = nullptr;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work;
  Resolver::Done on_done;
};

struct LookupThreads::State {
  struct Lookup {
    std::vector<std::shared_ptr<Caller>> callers;
    std::optional<Addresses> result;  // kept for later callers
    Clock::time_point finished;
  };

  State(LookUp how, std::size_t most) : look_up(std::move(how)), most_threads(most) {}

  const LookUp look_up;
  const std::size_t most_threads;
  std::mutex mutex;
  std::map<std::string, Lookup> lookups;
  std::deque<std::string> queue;  // names that wait for a thread
  std::size_t thread_count = 0;
};

LookupThreads::LookupThreads(LookUp look_up, std::size_t most_threads)
    : state_(std::make_shared<State>(std::move(look_up), most_threads)) {}

std::shared_ptr<LookupThreads> LookupThreads::of_process() {
  // Never destroyed: threads may still run while the process exits.
  static const auto* const threads =
      new std::shared_ptr<LookupThreads>(std::make_shared<LookupThreads>(ask_the_system));
  return *threads;
}

// Requires the mutex, so that the io_context cannot end meanwhile: its owner cancels first.
void LookupThreads::post_result(Caller& caller, const Addresses& result) {
  if (caller.io == nullptr) return;
  asio::io_context& io = *std::exchange(caller.io, nullptr);
  // The caller is kept by the Resolver as long as it wants the result.
  asio::post(io, [weak = std::weak_ptr<Caller>(caller.shared_from_this()), result] {
    const auto self = weak.lock();
    if (!self || !self->on_done) return;
    self->work.reset();
    std::exchange(self->on_done, nullptr)(result);
  });
}

void LookupThreads::work(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (!state->queue.empty()) {
    const std::string host = std::move(state->queue.front());
    state->queue.pop_front();
    lock.unlock();
    Addresses result = state->look_up(host);
    lock.lock();
    const auto lookup = state->lookups.find(host);
    bool is_wanted = false;
    for (const auto& caller : lookup->second.callers) {
      is_wanted = is_wanted || caller->io != nullptr;
      post_result(*caller, result);
    }
    if (is_wanted) {
      state->lookups.erase(lookup);
      continue;
    }
    lookup->second.callers.clear();
    lookup->second.result = std::move(result);
    lookup->second.finished = Clock::now();
  }
  --state->thread_count;
}

// Requires the mutex. Blocks signals in the new thread, so that the loop's thread gets them.
void LookupThreads::begin_thread(const std::shared_ptr<State>& state) {
  if (state->thread_count >= state->most_threads) return;
  sigset_t all{};
  sigset_t before{};
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([state] { work(state); }).detach();
    ++state->thread_count;
  } catch (const std::system_error&) {
    // Without any thread, the queued names fail below.
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Resolver::Resolver(asio::io_context& io, std::shared_ptr<LookupThreads> threads)
    : io_(io), threads_(std::move(threads)) {}

void Resolver::start(const std::string& host, Done on_done) {
  cancel();
  caller_ = std::make_shared<LookupThreads::Caller>();
  caller_->io = &io_;
  caller_->work.emplace(io_.get_executor());
  caller_->on_done = std::move(on_done);
  LookupThreads::State& state = *threads_->state_;
  const std::lock_guard lock(state.mutex);
  const auto now = Clock::now();
  std::erase_if(state.lookups, [now](const auto& entry) {
    return entry.second.result && now - entry.second.finished > LookupThreads::kKeepResult;
  });
  const auto found = state.lookups.find(host);
  if (found != state.lookups.end() && found->second.result) {
    LookupThreads::post_result(*caller_, *found->second.result);
    state.lookups.erase(found);
    return;
  }
  if (found != state.lookups.end()) {
    std::erase_if(found->second.callers, [](const auto& caller) { return caller->io == nullptr; });
    found->second.callers.push_back(caller_);
    return;
  }
  if (state.lookups.size() >= LookupThreads::kMostNames)
    return LookupThreads::post_result(
        *caller_, Error{ErrorCode::Unreachable, "too many names are being looked up"});
  state.lookups[host].callers.push_back(caller_);
  state.queue.push_back(host);
  LookupThreads::begin_thread(threads_->state_);
  if (state.thread_count > 0) return;
  state.queue.clear();
  state.lookups.erase(host);
  LookupThreads::post_result(*caller_,
                             Error{ErrorCode::Unreachable, "cannot start a thread to look it up"});
}

void Resolver::cancel() {
  if (!caller_) return;
  {
    const std::lock_guard lock(threads_->state_->mutex);
    caller_->io = nullptr;
  }
  caller_->work.reset();
  caller_->on_done = nullptr;
  caller_.reset();
}

}  // namespace drun::rendezvous

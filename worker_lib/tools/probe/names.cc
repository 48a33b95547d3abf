#include "worker_lib/tools/probe/names.h"

#include <netdb.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "drun/backend.h"
#include "worker_lib/base/threads.h"

namespace drun::probe {
namespace {

struct ListDeleter {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using List = std::unique_ptr<addrinfo, ListDeleter>;

List look_up(const std::string& name, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return nullptr;
  return List(found);
}

std::string text_of(const addrinfo& address, int flags) {
  std::array<char, NI_MAXHOST> text{};
  const int failed =
      getnameinfo(address.ai_addr, address.ai_addrlen, text.data(), text.size(), nullptr, 0, flags);
  return failed == 0 ? text.data() : "";
}

NameLookup look_up(const Named& node) {
  constexpr std::size_t kMostAddresses = 32;
  NameLookup lookup{.of = node.node, .is_done = true, .addresses = {}, .name_back = {}};
  const List found = look_up(node.host, 0);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    if (lookup.addresses.size() == kMostAddresses) break;
    lookup.addresses.push_back(text_of(*each, NI_NUMERICHOST));
  }
  const List address = look_up(node.address, AI_NUMERICHOST);
  if (address) lookup.name_back = text_of(*address, NI_NAMEREQD);
  return lookup;
}

}  // namespace

struct Names::Shared {
  std::mutex mutex;
  std::condition_variable is_changed;
  std::vector<Named> nodes;
  std::vector<NameLookup> done;
};

Names::Names(std::vector<Named> nodes) : shared_(std::make_shared<Shared>()) {
  shared_->nodes = std::move(nodes);
  const auto look_up_all = [shared = shared_] {
    for (const Named& node : shared->nodes) {
      NameLookup lookup = look_up(node);
      const std::lock_guard lock(shared->mutex);
      shared->done.push_back(std::move(lookup));
      shared->is_changed.notify_all();
    }
  };
  try {
    worker::start_thread(look_up_all).detach();
  } catch (const BackendFailure&) {
    // No thread: the lookups count as not done.
  }
}

std::vector<NameLookup> Names::wait_until(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(shared_->mutex);
  const std::size_t all = shared_->nodes.size();
  shared_->is_changed.wait_until(lock, deadline, [&] { return shared_->done.size() == all; });
  std::vector<NameLookup> lookups = shared_->done;
  for (std::size_t i = lookups.size(); i < all; ++i)
    lookups.push_back(
        {.of = shared_->nodes[i].node, .is_done = false, .addresses = {}, .name_back = {}});
  return lookups;
}

bool Names::is_hanging() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->done.size() < shared_->nodes.size();
}

}  // namespace drun::probe

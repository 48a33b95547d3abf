#include "worker_lib/tools/probe/look.h"

#include <netdb.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>
#include <utility>

#include "drun/backend.h"
#include "worker_lib/base/threads.h"
#include "worker_lib/nccl/library.h"
#include "worker_lib/start/local_address.h"

namespace drun::probe {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  constexpr std::size_t kMost = 200;
  return line.substr(0, kMost);
}

std::optional<std::uint64_t> soft_limit(__rlimit_resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

int mtu_of(const std::string& interface) {
  const std::string text = first_line("/sys/class/net/" + interface + "/mtu");
  return text.empty() || text.find_first_not_of("0123456789") != text.npos || text.size() > 9
             ? 0
             : std::stoi(text);
}

std::string nccl_here() {
  try {
    static_cast<void>(worker::need_nccl());
    return worker::nccl_version();
  } catch (const BackendFailure&) {
    return "";
  }
}

}  // namespace

Result<void> look_at_network(NodeFacts& facts, const std::string& master, std::uint16_t port,
                             const std::string& wanted) {
  const Result<worker::LocalAddress> address =
      wanted.empty() ? worker::address_towards(master, port) : worker::address_of_interface(wanted);
  if (!address) return address.error();
  facts.address = address->text;
  facts.network = wanted.empty() ? worker::interface_with(address->text) : wanted;
  // All of 127.0.0.0/8 is the loopback's, whose list has the first of it alone.
  if (facts.network.empty() && address->is_loopback) facts.network = "lo";
  if (!facts.network.empty()) facts.mtu = mtu_of(facts.network);
  return {};
}

void look_at_machine(NodeFacts& facts) {
  utsname names{};
  if (uname(&names) == 0) {
    facts.host = names.nodename;
    facts.kernel = names.release;
  }
  struct sysinfo memory {};
  if (sysinfo(&memory) == 0)
    facts.memory_bytes = static_cast<std::uint64_t>(memory.totalram) * memory.mem_unit;
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0) {
    facts.shm_bytes = static_cast<std::uint64_t>(shm.f_blocks) * shm.f_frsize;
    facts.shm_free_bytes = static_cast<std::uint64_t>(shm.f_bavail) * shm.f_frsize;
  }
  facts.nofile = soft_limit(RLIMIT_NOFILE);
  facts.nproc = soft_limit(RLIMIT_NPROC);
  facts.memlock_bytes = soft_limit(RLIMIT_MEMLOCK);
  facts.driver = first_line("/sys/module/nvidia/version");
  facts.nccl = nccl_here();
  std::error_code ec;
  facts.has_infiniband = std::filesystem::exists("/sys/class/infiniband", ec) &&
                         !std::filesystem::is_empty("/sys/class/infiniband", ec);
}

// --- Names

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

#include "worker_lib/tools/probe/look.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>

#include "drun/backend.h"
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

struct InterfacesDeleter {
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};

// Which one has `address`; empty: none.
std::string interface_of(const std::string& address) {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return "";
  const std::unique_ptr<ifaddrs, InterfacesDeleter> list(found);
  for (const ifaddrs* each = list.get(); each != nullptr; each = each->ifa_next) {
    const int family = each->ifa_addr == nullptr ? AF_UNSPEC : each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    std::array<char, NI_MAXHOST> text{};
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(each->ifa_addr, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) ==
            0 &&
        address == text.data())
      return each->ifa_name;
  }
  return "";
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
  facts.network = wanted.empty() ? interface_of(address->text) : wanted;
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

}  // namespace drun::probe

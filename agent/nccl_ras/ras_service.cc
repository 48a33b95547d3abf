#include "agent/nccl_ras/ras_service.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/process/descendants.h"
#include "agent/spawn/command.h"

namespace drun::agent::ras {
RasSettings settings_of(const WorkerSpec& spec) {
  RasSettings settings;
  const std::string* enabled = users_value(spec, kEnableVariable);
  settings.is_off = enabled != nullptr && *enabled == "0";
  const std::string* address = users_value(spec, kAddressVariable);
  settings.names_place = address != nullptr;
  if (address == nullptr) return settings;
  const Result<Endpoint> place = parse_endpoint(*address, 0);
  if (place && place->port != 0) settings.place = *place;
  return settings;
}

bool gives_place(const AgentSpec& spec) {
  const RasSettings settings = settings_of(spec.worker);
  return spec.hang_timeout.count() > 0 && !settings.is_off && !settings.names_place;
}

namespace {

constexpr std::size_t kMostProcesses = 256;  // of a worker

std::set<std::string> addresses_here() {
  std::set<std::string> addresses;
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return addresses;
  for (const ifaddrs* each = found; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    const int family = each->ifa_addr->sa_family;
    const void* address = nullptr;
    if (family == AF_INET)
      address = &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr;
    else if (family == AF_INET6)
      address = &reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr;
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (address != nullptr && ::inet_ntop(family, address, text.data(), text.size()) != nullptr)
      addresses.insert(text.data());
  }
  ::freeifaddrs(found);
  return addresses;
}

Own own_of(const std::vector<int>& pids) {
  Own own{.addresses = addresses_here(), .pids = {}};
  const Descendants found;
  for (const std::vector<ProcessStat>& tree : trees_below(pids, found.all(), kMostProcesses)) {
    std::vector<int>& all = own.pids.emplace_back();
    for (const ProcessStat& process : tree) all.push_back(process.pid);
  }
  return own;
}

}  // namespace

Service::Service(asio::io_context& io, const Log& log, const AgentSpec& spec)
    : io_(io), log_(log), client_(io) {
  const RasSettings settings = settings_of(spec.worker);
  if (!settings.is_off) place_ = settings.place;
  if (gives_place(spec)) hold_port();
}

void Service::hold_port() {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0 ||
      ::bind(fd.get(), where, size) != 0 || ::getsockname(fd.get(), where, &size) != 0)
    return log_.debug("no port for NCCL's RAS service: " + system_message(errno));
  held_ = std::move(fd);
  place_ = Endpoint{"127.0.0.1", ntohs(address.sin_port)};
  variable_ = to_string(*place_);
}

void Service::ask(const Workers& workers, OnFindings on_findings) {
  if (!place_) return asio::post(io_, [on_findings = std::move(on_findings)] { on_findings({}); });
  client_.ask(place_->host, place_->port,
              [this, workers, on_findings = std::move(on_findings)](const Result<Report>& answer) {
                log_change(answer ? "NCCL's RAS service at " + to_string(*place_) + " answers"
                                  : "NCCL's RAS service is not heard: " + answer.error().message);
                if (!answer) return on_findings({});
                on_findings(find(*answer, own_of(workers.pids), workers.base_rank));
              });
}

// Once, not with every query.
void Service::log_change(const std::string& text) {
  if (std::exchange(last_logged_, text) != text) log_.debug(text);
}

}  // namespace drun::agent::ras

#include "launcher/facts/host.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <system_error>

#include "agent/spawn/command.h"
#include "agent/spawn/program_starter.h"
#include "agent/stacks/helper_program.h"
#include "launcher/base/version.h"
#include "launcher/engines/detect.h"
#include "launcher/engines/engine_facts.h"
#include "launcher/engines/pmi.h"
#include "launcher/facts/files.h"
#include "launcher/facts/gpus.h"
#include "launcher/facts/host_text.h"
#include "launcher/facts/topology.h"
#include "launcher/facts/visible_gpus.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/asio.h"

namespace drun {
namespace {

// With a single cpu_set_t (1024 CPUs) the calls fail on larger machines.
using CpuSet = std::array<cpu_set_t, 16>;
constexpr int kMostCpus = 16 * CPU_SETSIZE;

// The numbers in this thread's affinity mask; empty if unknown.
std::vector<int> affinity_list() {
  CpuSet set{};
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), set.data()) != 0) return cpus;
  const auto count = static_cast<std::size_t>(CPU_COUNT_S(sizeof(set), set.data()));
  for (int cpu = 0; cpus.size() < count; ++cpu)
    if (CPU_ISSET_S(static_cast<std::size_t>(cpu), sizeof(set), set.data())) cpus.push_back(cpu);
  return cpus;
}

// The mount point of cgroup v1's cpu controller, which has one of two names.
std::string v1_folder(const CgroupFolders& folders, const std::string& cgroups) {
  for (const std::string& name : folders.v1_mounts) {
    if (!names_in(cgroups + name).empty()) return cgroups + name;
  }
  return cgroups + "cpu";
}

}  // namespace

int cpus_within_quota(int cpus, const std::string& root) {
  const std::string cgroups = root + "/sys/fs/cgroup/";
  const CgroupFolders folders = cgroup_folders(text_of_file(root + "/proc/self/cgroup"));
  for (const std::string& folder : folders.v2)
    cpus = cores_within(cpus, quota_cores(text_of_file(cgroups + folder + "/cpu.max")));
  const std::string v1 = v1_folder(folders, cgroups);
  for (const std::string& folder : folders.v1) {
    std::string quota = text_of_file(v1 + folder + "/cpu.cfs_quota_us");
    std::replace(quota.begin(), quota.end(), '\n', ' ');
    cpus =
        cores_within(cpus, quota_cores(quota + text_of_file(v1 + folder + "/cpu.cfs_period_us")));
  }
  return cpus;
}

Result<void> set_affinity(const std::vector<int>& cpus) {
  CpuSet set{};
  for (const int cpu : cpus)
    if (cpu >= 0 && cpu < kMostCpus)
      CPU_SET_S(static_cast<std::size_t>(cpu), sizeof(set), set.data());
  if (sched_setaffinity(0, sizeof(set), set.data()) == 0) return {};
  return system_error("set the CPU affinity", errno);
}

}  // namespace drun

extern char** environ;

namespace drun {
namespace {

namespace fs = std::filesystem;

void fill_in_gpus(HostFacts& facts) {
  GpuTable installed = look_at_gpus();
  const auto count = [&installed] { return installed.gpus.size(); };
  if (installed.is_amd) {
    // HIP numbers the devices that ROCR leaves visible, and reads CUDA's variable only if its own
    // is not set.
    const auto rocr =
        visible_gpu_names(variable(facts, "ROCR_VISIBLE_DEVICES"), unnamed_gpus(count()));
    installed.gpus = gpus_named(rocr, installed.gpus);
    if (variable(facts, "HIP_VISIBLE_DEVICES")) facts.gpu_variable = "HIP_VISIBLE_DEVICES";
  }
  if (installed.is_amd) {
    const auto names =
        visible_gpu_names(variable(facts, facts.gpu_variable), unnamed_gpus(count()));
    facts.gpus = static_cast<int>(names.size());
  } else if (count() > 0) {
    const GpuView view = view_of(installed, variable(facts, facts.gpu_variable),
                                 variable(facts, "NVIDIA_VISIBLE_DEVICES"));
    facts.gpus = view.count;
    if (view.list) facts.environment.emplace_back(facts.gpu_variable, *view.list);
  }
  facts.installed_gpus = std::move(installed.gpus);
  // Append the MIG instances, by UUID and with the location of their GPU.
  for (const MigInstance& mig : installed.instances) {
    facts.installed_gpus.push_back(facts.installed_gpus[mig.gpu]);
    facts.installed_gpus.back().uuid = mig.uuid;
  }
}

std::vector<EnvironmentEntry> whole_environment() {
  std::vector<EnvironmentEntry> entries;
  std::set<std::string_view> seen;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals == text.npos || !seen.insert(text.substr(0, equals)).second) continue;
    entries.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return entries;
}

bool fill_with_random(std::span<unsigned char> bytes) {
  return getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
}

std::string hex(std::span<const unsigned char> bytes) {
  std::string text;
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string new_secret() {
  std::array<unsigned char, 32> bytes{};
  return fill_with_random(bytes) ? hex(bytes) : "";
}

// Reserves each port with a bound socket that does not listen: the kernel gives the port to no
// other process, and a listener can still bind it.
PortMaker free_ports() {
  auto held = std::make_shared<std::vector<UniqueFd>>();
  return [held]() -> std::optional<int> {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    const int on = 1;
    auto* const place = reinterpret_cast<sockaddr*>(&address);
    // Set SO_REUSEADDR after bind(). If it were set before, the kernel could choose a port that
    // another such socket holds.
    if (!fd || bind(fd.get(), place, size) != 0 || getsockname(fd.get(), place, &size) != 0 ||
        setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0)
      return std::nullopt;
    held->push_back(std::move(fd));
    return ntohs(address.sin_port);
  };
}

std::string random_id() {
  std::array<unsigned char, 16> bytes{};
  if (!fill_with_random(bytes)) {  // no getrandom: time and pid are unique enough for a name
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const std::array<unsigned long long, 2> rest{static_cast<unsigned long long>(now.tv_nsec),
                                                 static_cast<unsigned long long>(getpid())};
    std::copy_n(reinterpret_cast<const unsigned char*>(rest.data()), bytes.size(), bytes.begin());
  }
  return hex(bytes);
}

std::string numeric(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return {};
  return text.data();
}

std::vector<std::pair<std::string, std::string>> own_interfaces() {
  std::vector<std::pair<std::string, std::string>> interfaces;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return interfaces;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    const int family = each->ifa_addr == nullptr ? AF_UNSPEC : each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    interfaces.emplace_back(
        each->ifa_name,
        numeric(each->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)));
  }
  freeifaddrs(list);
  return interfaces;
}

// Containers on one machine share the boot id but have separate network namespaces.
std::string own_machine_id() {
  struct stat network {};
  const std::string boot = text_of_file("/proc/sys/kernel/random/boot_id");
  if (boot.empty() || stat("/proc/self/ns/net", &network) != 0) return {};
  return boot.substr(0, boot.find('\n')) + "/" + std::to_string(network.st_ino);
}

std::vector<std::string> addresses_of(const std::string& name) {
  std::vector<std::string> addresses;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next)
    addresses.push_back(numeric(each->ai_addr, each->ai_addrlen));
  freeaddrinfo(found);
  return addresses;
}

// Runs `scontrol show node`, for 10 s at most.
std::vector<std::string> slurm_addresses(const std::string& node) {
  constexpr std::chrono::seconds kLimit{10};
  std::vector<std::string> addresses;
  const std::vector<std::string> environment = agent::to_lines(whole_environment());
  asio::io_context io{1};
  agent::ProgramStarter starter(io, 1);
  const agent::Helper scontrol(io, starter, {"scontrol", "--oneliner", "show", "node", node},
                               environment, kLimit, [&](const agent::Helper::End& end) {
                                 if (end.trouble.empty() && !end.is_late)
                                   addresses = engines::slurm_node_addresses(end.output);
                               });
  io.run();
  return addresses;
}

// Asks the kernel: connecting a datagram socket selects the address and sends nothing.
std::optional<std::string> source_address(const std::string& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), "9", &hints, &found) != 0) return std::nullopt;
  const UniqueFd fd(socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const bool is_routed = fd && connect(fd.get(), found->ai_addr, found->ai_addrlen) == 0;
  freeaddrinfo(found);
  sockaddr_storage own{};
  socklen_t own_bytes = sizeof own;
  auto* const place = reinterpret_cast<sockaddr*>(&own);
  if (!is_routed || getsockname(fd.get(), place, &own_bytes) != 0) return std::nullopt;
  const std::string text = numeric(place, own_bytes);
  return text.empty() ? std::nullopt : std::optional(text);
}

// Present if an engine passed a PMI descriptor or set the variables of a PMIx server.
engines::Meeting meeting_of(const HostFacts& facts) {
  static constexpr std::chrono::minutes kLimit{5};
  if (variable(facts, "PMIX_NAMESPACE") && !variable(facts, "PMI_FD")) {
    return [](const std::optional<std::string>& own_text) {
      return engines::meet_by_pmix(own_text, kLimit);
    };
  }
  const auto fd = engines::whole_number(variable(facts, "PMI_FD").value_or(""));
  struct stat status {};
  if (!fd || *fd > INT_MAX || fstat(static_cast<int>(*fd), &status) != 0 ||
      !S_ISSOCK(status.st_mode))
    return {};
  return [fd = static_cast<int>(*fd)](
             const std::optional<std::string>& own_text) -> Result<engines::MeetingResult> {
    Result<std::string> text = engines::meet_by_pmi(fd, own_text, kLimit);
    if (!text) return text.error();
    return engines::MeetingResult{.text = *std::move(text)};
  };
}

FileKind look_at_file(const std::string& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0)
    return errno == EACCES ? FileKind::NotExecutable : FileKind::Missing;
  if (S_ISDIR(facts.st_mode)) return FileKind::Directory;
  // Checks the effective user's permission, as execve does; access() would check the real user's.
  return faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) == 0 ? FileKind::Executable
                                                                  : FileKind::NotExecutable;
}

}  // namespace

std::optional<std::string> value_of(const std::vector<EnvironmentEntry>& entries,
                                    std::string_view name) {
  for (const auto& [each, value] : entries)
    if (each == name) return value;
  return std::nullopt;
}

std::optional<std::string> variable(const HostFacts& facts, std::string_view name) {
  return value_of(facts.environment, name);
}

std::optional<std::string> workers_variable(const HostFacts& facts, std::string_view name) {
  const std::optional<std::string> exported = value_of(facts.exports, name);
  return exported ? exported : variable(facts, name);
}

// /proc/PID/environ shows the original environment strings, so overwrite the value in place.
void hide_secret_variable() {
  constexpr std::string_view kStart = "DRUN_SECRET=";
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (text.starts_with(kStart))
      explicit_bzero(*entry + kStart.size(), text.size() - kStart.size());
  }
}

HostFacts look_at_host() {
  HostFacts facts;
  utsname names{};
  if (uname(&names) == 0) facts.hostname = names.nodename;
  facts.environment = whole_environment();
  hide_secret_variable();
  facts.cpus = affinity_list();
  const auto bound = static_cast<long>(facts.cpus.size());
  const long online = bound > 0 ? bound : std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
  facts.usable_cpus = cpus_within_quota(static_cast<int>(online), "");
  fill_in_gpus(facts);
  std::error_code ec;
  facts.working_directory = fs::current_path(ec).string();
  facts.own_folder = fs::read_symlink("/proc/self/exe", ec).parent_path().string();
  facts.drun_version = kVersion;
  facts.random_id = random_id();
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  if (localtime_r(&now, &local) != nullptr)
    facts.utc_offset = std::chrono::seconds(local.tm_gmtoff);
  facts.has_terminal = isatty(STDERR_FILENO) == 1;
  winsize size{};
  if (facts.has_terminal && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    facts.columns = size.ws_col;
  facts.interfaces = own_interfaces();
  for (const auto& [interface, address] : facts.interfaces) facts.addresses.push_back(address);
  facts.machine_id = own_machine_id();
  facts.addresses_of = addresses_of;
  facts.slurm_addresses = slurm_addresses;
  facts.source_address = source_address;
  facts.topology = read_topology;
  facts.probe = look_at_file;
  facts.file_text = whole_text_of;
  facts.meeting = meeting_of(facts);
  facts.secret_file = read_secret_file;
  facts.new_secret = new_secret;
  facts.free_port = free_ports();
  return facts;
}

}  // namespace drun

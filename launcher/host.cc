#include "launcher/host.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "launcher/host_text.h"

extern char** environ;

namespace drun {
namespace {

namespace fs = std::filesystem;

std::string text_of(const std::string& path) {
  constexpr std::size_t kMostBytes = 64 * 1024;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ec;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec))
    names.push_back(it->path().filename().string());
  return names;
}

int affinity_cores() {
  // Larger than any machine: with CPU_SETSIZE's 1024, the call fails beyond 1024 cores.
  std::array<cpu_set_t, 16> set{};
  if (sched_getaffinity(0, sizeof(set), set.data()) != 0)
    return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  return CPU_COUNT_S(sizeof(set), set.data());
}

int usable_cpus() {
  const CgroupFolders folders = cgroup_folders(text_of("/proc/self/cgroup"));
  int cores = affinity_cores();
  for (const std::string& folder : folders.v2)
    cores = cores_within(cores, quota_cores(text_of("/sys/fs/cgroup" + folder + "/cpu.max")));
  for (const std::string& folder : folders.v1) {
    const std::string place = "/sys/fs/cgroup/cpu" + folder;
    std::string quota = text_of(place + "/cpu.cfs_quota_us");
    std::replace(quota.begin(), quota.end(), '\n', ' ');
    cores = cores_within(cores, quota_cores(quota + text_of(place + "/cpu.cfs_period_us")));
  }
  return cores;
}

// Device files first: in a container they are the ones that were handed in, while /proc shows all.
int installed_nvidia_gpus() {
  int files = 0;
  for (const std::string& name : names_in("/dev")) {
    const bool is_gpu = name.starts_with("nvidia") && name.size() > 6 &&
                        name.find_first_not_of("0123456789", 6) == name.npos;
    files += is_gpu ? 1 : 0;
  }
  return files > 0 ? files : static_cast<int>(names_in("/proc/driver/nvidia/gpus").size());
}

int installed_amd_gpus() {
  const std::string nodes = "/sys/class/kfd/kfd/topology/nodes/";
  int gpus = 0;
  for (const std::string& node : names_in(nodes)) {
    const std::string id = text_of(nodes + node + "/gpu_id");  // a CPU's is 0
    gpus += id.empty() || id.starts_with("0\n") ? 0 : 1;
  }
  return gpus;
}

int gpus(const HostFacts& facts) {
  if (const int nvidia = installed_nvidia_gpus(); nvidia > 0)
    return visible_gpus(variable(facts, "CUDA_VISIBLE_DEVICES"), nvidia);
  const int amd = installed_amd_gpus();
  for (const char* name : {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}) {
    if (const auto list = variable(facts, name)) return visible_gpus(list, amd);
  }
  return amd;
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

std::string random_id() {
  std::array<unsigned char, 16> bytes{};
  const bool is_random =
      getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
  if (!is_random) {  // a kernel without it: time and pid are unlike enough for a name
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const std::array<unsigned long long, 2> rest{static_cast<unsigned long long>(now.tv_nsec),
                                                 static_cast<unsigned long long>(getpid())};
    std::copy_n(reinterpret_cast<const unsigned char*>(rest.data()), bytes.size(), bytes.begin());
  }
  std::string text;
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string numeric(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return {};
  return text.data();
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    const int family = each->ifa_addr == nullptr ? AF_UNSPEC : each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    addresses.push_back(
        numeric(each->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)));
  }
  freeifaddrs(list);
  return addresses;
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

// Host files are small, whatever a variable names may not be: a pipe would be waited for.
std::optional<std::string> whole_text_of(const std::string& path) {
  constexpr std::size_t kMostBytes = std::size_t{4} << 20;
  std::error_code ec;
  if (!fs::is_regular_file(path, ec)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 64 * 1024> part{};
  while (file && text.size() <= kMostBytes) {
    file.read(part.data(), part.size());
    text.append(part.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (!file.eof() || text.size() > kMostBytes) return std::nullopt;
  return text;
}

FileKind look_at_file(const std::string& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0)
    return errno == EACCES ? FileKind::NotExecutable : FileKind::Missing;
  if (S_ISDIR(facts.st_mode)) return FileKind::Directory;
  // The effective user's right, as execve asks it; access() alone would take the real user's.
  return faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) == 0 ? FileKind::Executable
                                                                  : FileKind::NotExecutable;
}

}  // namespace

std::optional<std::string> variable(const HostFacts& facts, std::string_view name) {
  for (const auto& [each, value] : facts.environment) {
    if (each == name) return value;
  }
  return std::nullopt;
}

HostFacts look_at_host() {
  HostFacts facts;
  utsname names{};
  if (uname(&names) == 0) facts.hostname = names.nodename;
  facts.environment = whole_environment();
  facts.usable_cpus = usable_cpus();
  facts.gpus = gpus(facts);
  std::error_code ec;
  facts.working_directory = fs::current_path(ec).string();
  facts.random_id = random_id();
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  if (localtime_r(&now, &local) != nullptr)
    facts.utc_offset = std::chrono::seconds(local.tm_gmtoff);
  facts.has_terminal = isatty(STDERR_FILENO) == 1;
  winsize size{};
  if (facts.has_terminal && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    facts.columns = size.ws_col;
  facts.addresses = own_addresses();
  facts.addresses_of = addresses_of;
  facts.probe = look_at_file;
  facts.file_text = whole_text_of;
  return facts;
}

Result<void> write_file(const std::string& path, std::string_view text) {
  // What a link points to is replaced, not the link: it may be /dev/stdout. Devices and pipes are
  // written to.
  std::error_code ec;
  if (fs::is_symlink(path, ec)) {
    const std::string target = fs::canonical(path, ec).string();
    if (!ec && fs::is_regular_file(target, ec)) return write_file(target, text);
  }
  const bool is_special = fs::exists(path, ec) && !fs::is_regular_file(path, ec);
  const std::string place = is_special ? path : path + "." + std::to_string(getpid()) + ".part";
  std::FILE* file = std::fopen(place.c_str(), "we");
  if (file == nullptr) return system_error("write " + path, errno);
  const bool is_written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int write_error = errno;
  const bool is_closed = std::fclose(file) == 0;
  if (is_written && is_closed && (is_special || std::rename(place.c_str(), path.c_str()) == 0))
    return {};
  const Error error = system_error("write " + path, is_written ? errno : write_error);
  if (!is_special) std::remove(place.c_str());
  return error;
}

}  // namespace drun

#include "agent/workers/gpu_release.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "rendezvous/base/late_library.h"
#include "rendezvous/base/text.h"

namespace drun::agent {
namespace {

constexpr int kSuccess = 0;
constexpr unsigned kMostDevices = 1024;
constexpr unsigned kMostGpuProcesses = 1024;  // of one GPU
constexpr std::chrono::milliseconds kInterval{50};
constexpr std::chrono::seconds kSilentWait{1};
constexpr std::chrono::seconds kAnswerAtMost{5};  // in addition to the requested time

using DeviceHandle = void*;

// nvmlProcessInfo_t of nvmlDeviceGetComputeRunningProcesses_v2 and _v3.
struct ProcessInfo {
  unsigned pid = 0;
  unsigned long long used_bytes = 0;
  unsigned gpu_instance = 0;
  unsigned compute_instance = 0;
};
static_assert(sizeof(ProcessInfo) == 24);

// Loads and initializes NVML for its lifetime.
class Nvml {
 public:
  explicit Nvml(const std::string& library)
      : library_(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) return;
    find_function(library_, "nvmlInit_v2", init_);
    find_function(library_, "nvmlShutdown", shutdown_);
    find_function(library_, "nvmlDeviceGetCount_v2", count_);
    find_function(library_, "nvmlDeviceGetHandleByIndex_v2", device_at_);
    find_function(library_, "nvmlDeviceGetComputeRunningProcesses_v3", processes_);
    if (processes_ == nullptr)
      find_function(library_, "nvmlDeviceGetComputeRunningProcesses_v2", processes_);
    const bool is_enough = init_ && shutdown_ && count_ && device_at_ && processes_;
    is_on_ = is_enough && init_() == kSuccess;
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    if (is_on_) shutdown_();
    if (library_ != nullptr) dlclose(library_);
  }

  bool is_on() const { return is_on_; }

  // Sorted.
  std::vector<int> processes() const {
    std::vector<int> pids;
    unsigned devices = 0;
    if (count_(&devices) != kSuccess) return pids;
    std::vector<ProcessInfo> listed(kMostGpuProcesses);
    for (unsigned i = 0; i < std::min(devices, kMostDevices); ++i) {
      DeviceHandle device = nullptr;
      unsigned count = kMostGpuProcesses;
      if (device_at_(i, &device) != kSuccess) continue;  // not this container's
      if (processes_(device, &count, listed.data()) != kSuccess) continue;
      for (unsigned each = 0; each < std::min(count, kMostGpuProcesses); ++each)
        pids.push_back(static_cast<int>(listed[each].pid));
    }
    std::sort(pids.begin(), pids.end());
    return pids;
  }

 private:
  void* library_ = nullptr;
  bool is_on_ = false;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*device_at_)(unsigned, DeviceHandle*) = nullptr;
  int (*processes_)(DeviceHandle, unsigned*, ProcessInfo*) = nullptr;
};

// A pid that exists belongs to a newer process.
bool is_gone(int pid) { return ::kill(pid, 0) != 0 && errno == ESRCH; }

std::vector<int> held_by(const Nvml& nvml, const std::vector<int>& pids) {
  std::vector<int> holders;
  const std::vector<int> listed = nvml.processes();
  for (const int pid : pids)
    if (std::binary_search(listed.begin(), listed.end(), pid) && is_gone(pid))
      holders.push_back(pid);
  return holders;
}

std::string unfreed_by(const std::vector<int>& holders, std::chrono::milliseconds at_most) {
  return "the GPU memory of pid " + std::to_string(holders.front()) +
         (holders.size() > 1 ? " and " + std::to_string(holders.size() - 1) + " more" : "") +
         ", which has ended, is not free after " + rendezvous::duration_text(at_most);
}

}  // namespace

bool is_first_pid_namespace() {
  constexpr std::string_view kFirst = "pid:[4026531836]";  // PROC_PID_INIT_INO of the kernel
  std::array<char, 64> text{};
  const ssize_t size = ::readlink("/proc/self/ns/pid", text.data(), text.size());
  return size > 0 && std::string_view(text.data(), static_cast<std::size_t>(size)) == kFirst;
}

GpuRelease::GpuRelease(asio::io_context& io, Log log, std::string library)
    : library_(std::move(library)), log_(log), note_(io), limit_(io), thread_(io, log, {}) {}

void GpuRelease::wait(std::vector<int> pids, std::chrono::milliseconds at_most, OnFree on_free) {
  if (library_.empty() || pids.empty()) return on_free("");
  on_free_ = std::move(on_free);
  const auto unfreed = std::make_shared<std::string>();
  const int number = ++wait_;
  thread_.run(
      [library = library_, pids = std::move(pids), at_most, unfreed] {
        const Nvml nvml(library);
        if (!nvml.is_on()) return;
        const auto until = std::chrono::steady_clock::now() + at_most;
        for (;;) {
          const std::vector<int> holders = held_by(nvml, pids);
          if (holders.empty()) return;
          if (std::chrono::steady_clock::now() >= until) {
            *unfreed = unfreed_by(holders, at_most);
            return;
          }
          std::this_thread::sleep_for(kInterval);
        }
      },
      [this, number, unfreed](bool has_run) {
        if (number == wait_) give(has_run ? *unfreed : "");
      });
  note_.expires_after(kSilentWait);
  note_.async_wait([this, at_most](const error_code& ec) {
    if (!ec)
      log_.info("waiting for up to " + rendezvous::duration_text(at_most) +
                " until the GPU memory of this node's last workers is free");
  });
  limit_.expires_after(at_most + kAnswerAtMost);
  limit_.async_wait([this, at_most](const error_code& ec) {
    if (!ec)
      give("NVIDIA's driver did not answer for " +
           rendezvous::duration_text(at_most + std::chrono::milliseconds(kAnswerAtMost)));
  });
}

void GpuRelease::give(const std::string& unfreed) {
  note_.cancel();
  limit_.cancel();
  if (const OnFree given = std::exchange(on_free_, nullptr)) given(unfreed);
}

void GpuRelease::stop() {
  thread_.abandon();
  give("");
}

}  // namespace drun::agent

// A stand-in for NVIDIA's management library, with the GPUs and MIG instances in DRUN_TEST_NVML.
//
//   DRUN_TEST_NVML="gpu 3b GPU-aaaa; mig MIG-bbbb 1 0; gpu 5e GPU-cccc; denied"
//
// Each "gpu" has a PCI bus number and a UUID. The MIG instances that follow it have a UUID, a GPU
// instance and a compute instance; "gap" is an index without an instance. "divided" alone is MIG
// mode without instances. "denied" is a GPU that this container has no access to. "broken" makes
// the initialization fail. The file named by DRUN_TEST_NVML_PROCESSES lists the process ids that
// use the first GPU.
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kSuccess = 0;
constexpr int kNoPermission = 4;
constexpr int kNotFound = 6;
constexpr int kDriverNotLoaded = 9;

struct Item {
  std::string uuid;
  unsigned bus = 0;
  unsigned gpu_instance = 0;
  unsigned compute_instance = 0;
  bool is_denied = false;
  bool is_divided = false;
  std::vector<Item> instances{};
};

bool is_broken = false;
std::vector<Item> gpus;

void read(const std::string& text) {
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ';');) {
    std::istringstream words(item);
    std::string kind;
    Item made;
    words >> kind;
    if (kind == "broken") is_broken = true;
    if (kind == "gpu") words >> std::hex >> made.bus >> made.uuid;
    if (kind == "mig") words >> made.uuid >> made.gpu_instance >> made.compute_instance;
    made.is_denied = kind == "denied" || kind == "gap";
    if (kind == "gpu" || kind == "denied") gpus.push_back(made);
    if (gpus.empty()) continue;
    if (kind == "mig" || kind == "gap" || kind == "divided") gpus.back().is_divided = true;
    if (kind == "mig" || kind == "gap") gpus.back().instances.push_back(made);
  }
}

const Item& item(void* handle) { return *static_cast<const Item*>(handle); }

}  // namespace

extern "C" {

int nvmlInit_v2() {
  gpus.clear();
  is_broken = false;
  const char* text = std::getenv("DRUN_TEST_NVML");
  read(text == nullptr ? "broken" : text);
  return is_broken ? kDriverNotLoaded : kSuccess;
}

int nvmlShutdown() { return kSuccess; }

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(gpus.size());
  return kSuccess;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  if (gpus.at(index).is_denied) return kNoPermission;
  *handle = &gpus.at(index);
  return kSuccess;
}

struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};

int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count, ProcessInfo* found) {
  const char* path = std::getenv("DRUN_TEST_NVML_PROCESSES");
  std::ifstream file(path == nullptr || handle != &gpus.front() ? "" : path);
  unsigned listed = 0;
  for (unsigned pid = 0; listed < *count && file >> pid; ++listed)
    found[listed] = {pid, 1U << 30, 0, 0};
  *count = listed;
  return kSuccess;
}

int nvmlDeviceGetUUID(void* handle, char* text, unsigned size) {
  std::strncpy(text, item(handle).uuid.c_str(), size);
  return kSuccess;
}

int nvmlDeviceGetPciInfo_v3(void* handle, void* info) {
  std::memset(info, 0, 68);
  std::memcpy(static_cast<char*>(info) + 20, &item(handle).bus, sizeof(unsigned));
  return kSuccess;
}

int nvmlDeviceGetMigMode(void* handle, unsigned* current, unsigned* pending) {
  *current = *pending = item(handle).is_divided ? 1 : 0;
  return kSuccess;
}

int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) {
  *count = 7;
  return kSuccess;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void* handle, unsigned index, void** instance) {
  auto& instances = static_cast<Item*>(handle)->instances;
  if (index >= instances.size() || instances[index].is_denied) return kNotFound;
  *instance = &instances[index];
  return kSuccess;
}

int nvmlDeviceGetGpuInstanceId(void* handle, unsigned* id) {
  *id = item(handle).gpu_instance;
  return kSuccess;
}

int nvmlDeviceGetComputeInstanceId(void* handle, unsigned* id) {
  *id = item(handle).compute_instance;
  return kSuccess;
}
}

#include "worker_lib/nccl/library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cassert>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <vector>

#include "drun/backend.h"

namespace drun::worker {
namespace {

BackendFailure unusable(const std::string& message) {
  return {WorkerError::Kind::Unsupported, message};
}

// One of the two libraries: its name, and the remedy if it is missing.
struct Wanted {
  const char* what;
  const char* name;
  const char* variable;
  const char* remedy;

  std::string file() const {
    const char* value = std::getenv(variable);
    return value == nullptr || *value == '\0' ? name : value;
  }
  std::string text() const { return file() + " (" + what + ")"; }
};

constexpr Wanted kCuda{"the CUDA driver", "libcuda.so.1", "DRUN_CUDA_LIBRARY",
                       "there is no NVIDIA driver here, or DRUN_CUDA_LIBRARY should name its file"};
constexpr Wanted kNcclLibrary{
    "NCCL", "libnccl.so.2", "DRUN_NCCL_LIBRARY",
    "install it, add its folder to LD_LIBRARY_PATH, or let DRUN_NCCL_LIBRARY "
    "name its file"};

// Null if it is not loaded and `mode` forbids loading.
void* open_library(const Wanted& wanted, int mode) {
  void* const library = dlopen(wanted.file().c_str(), RTLD_NOW | RTLD_LOCAL | mode);
  if (library != nullptr || (mode & RTLD_NOLOAD) != 0) return library;
  const char* reason = dlerror();
  throw unusable("cannot load " + wanted.text() + ": " +
                 (reason == nullptr ? "no reason given" : reason) + "; " + wanted.remedy);
}

// Fills one entry of a table. False if the library lacks the symbol.
template <typename Api, typename Member>
bool bind(void* library, Api& api, const Symbol<Member>& symbol) {
  void* const function = dlsym(library, symbol.name);
  using Function = std::remove_reference_t<decltype(api.*symbol.member)>;
  api.*symbol.member = reinterpret_cast<Function>(function);
  return function != nullptr || !symbol.is_needed;
}

template <typename Api, typename Symbols>
Api bind_all(const Wanted& wanted, void* library, const Symbols& symbols) {
  Api api;
  std::string missing;
  std::apply(
      [&](const auto&... symbol) {
        const auto note = [&](bool is_there, const char* name) {
          if (!is_there) missing += (missing.empty() ? "" : ", ") + std::string(name);
        };
        (note(bind(library, api, symbol), symbol.name), ...);
      },
      symbols);
  if (missing.empty()) return api;
  throw unusable(wanted.text() + " lacks " + missing +
                 ": it is too old, or not what its name says; " + wanted.remedy);
}

// Unlike setenv, never frees the list that another thread's getenv may be reading.
void reserve_stack() {
  static char entry[] = "NCCL_SET_STACK_SIZE=1";
  static auto& list = *new std::vector<char*>;
  if (std::getenv("NCCL_SET_STACK_SIZE") != nullptr || !list.empty()) return;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) list.push_back(*each);
  list.push_back(entry);
  list.push_back(nullptr);
  environ = list.data();
}

struct Libraries {
  std::mutex mutex;  // held while one is loaded; each operation reads the pointers without it
  std::atomic<const cuda::Api*> cuda = nullptr;
  std::atomic<int> gpus = 0;  // 0: not initialized yet
  std::atomic<const nccl::Api*> nccl = nullptr;
  int nccl_version = 0;
};

std::atomic<bool> exit_has_begun = false;

// Never destroyed, because groups can end at the end of the program.
Libraries& libraries() {
  static Libraries& the = *new Libraries;
  return the;
}

const cuda::Api* bind_cuda(void* library) {
  return new cuda::Api(bind_all<cuda::Api>(kCuda, library, kCudaSymbols));
}

int initialize(const cuda::Api& cuda) {
  assert(cuda.init != nullptr && cuda.device_get_count != nullptr);  // bound
  int count = 0;
  cuda::Result result = cuda.init(0);
  if (result == cuda::kSuccess) result = cuda.device_get_count(&count);
  if (result != cuda::kSuccess) {
    throw unusable("no GPU can be used: " + kCuda.text() + " says: " + error_text(cuda, result));
  }
  if (count > 0) return count;
  throw unusable("no GPU can be used: " + kCuda.text() +
                 " finds none; is CUDA_VISIBLE_DEVICES set to nothing?");
}

}  // namespace

const cuda::Api& need_cuda() {
  Libraries& the = libraries();
  if (the.gpus > 0) return *the.cuda;
  const std::lock_guard lock(the.mutex);
  if (the.cuda == nullptr) the.cuda = bind_cuda(open_library(kCuda, 0));
  if (the.gpus == 0) the.gpus = initialize(*the.cuda);
  return *the.cuda;
}

int gpu_count() {
  need_cuda();
  return libraries().gpus;
}

const cuda::Api* loaded_cuda() {
  Libraries& the = libraries();
  if (const cuda::Api* const api = the.cuda) return api;
  const std::lock_guard lock(the.mutex);
  if (const cuda::Api* const api = the.cuda) return api;
  void* const library = open_library(kCuda, RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  try {
    the.cuda = bind_cuda(library);
  } catch (const BackendFailure&) {
    return nullptr;  // need_cuda reports it, if it is needed
  }
  return the.cuda;
}

const nccl::Api& need_nccl() {
  Libraries& the = libraries();
  if (const nccl::Api* const api = the.nccl) return *api;
  const std::lock_guard lock(the.mutex);
  if (const nccl::Api* const api = the.nccl) return *api;
  // Otherwise the first launch of a kernel that needs a larger stack waits until all running
  // kernels are done, such as a collective that another rank joins only after it has received a
  // message.
  reserve_stack();
  const auto api = bind_all<nccl::Api>(kNcclLibrary, open_library(kNcclLibrary, 0), kNcclSymbols);
  int version = 0;
  if (api.get_version(&version) != nccl::kSuccess || version < nccl::kOldestVersion) {
    throw unusable(kNcclLibrary.text() + " is version " + version_text(version) + "; " +
                   version_text(nccl::kOldestVersion) + " or later is needed");
  }
  the.nccl_version = version;
  the.nccl = new nccl::Api(api);
  return *the.nccl;
}

std::string error_text(const cuda::Api& cuda, cuda::Result result) {
  const char* text = nullptr;
  cuda.get_error_string(result, &text);
  return (text == nullptr ? "unknown error" : std::string(text)) + " (" + std::to_string(result) +
         ")";
}

bool has_exit_begun() { return exit_has_begun; }
void note_exit() { exit_has_begun = true; }

std::string nccl_version() {
  const std::lock_guard lock(libraries().mutex);
  return version_text(libraries().nccl_version);
}

std::string version_text(int code) {
  const int base = code < 10000 ? 1000 : 10000;  // before 2.9: 2804 is 2.8.4
  return std::to_string(code / base) + "." + std::to_string(code % base / 100) + "." +
         std::to_string(code % 100);
}

}  // namespace drun::worker

#include "rendezvous/base/late_library.h"

#include <dlfcn.h>

namespace drun {
namespace {

Error unusable(const char* library, const std::string& remedy) {
  const char* const reason = dlerror();
  return Error{ErrorCode::System, std::string("cannot load ") + library + " (" +
                                      (reason != nullptr ? reason : "no reason given") + "); " +
                                      remedy};
}

}  // namespace

// Never closed, because its functions may be in use until the process exits.
Result<void> load_late(const char* library, std::span<const LateFunction> functions,
                       const std::string& remedy) {
  if (functions.empty() || *functions.back().place != nullptr) return {};
  void* const loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) return unusable(library, remedy);
  for (const LateFunction& function : functions) {
    void* const found = dlsym(loaded, function.name);
    if (found == nullptr) return unusable(library, remedy);
    *function.place = found;
  }
  return {};
}

}  // namespace drun

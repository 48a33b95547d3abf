// edge. Loads a shared library of C functions when it is needed instead of at each start: resolving
// OpenSSL's symbols takes longer than the rest of drun --help, and most jobs have no secret.
//
// The functions keep their names, so that callers such as Asio need no change: each function jumps
// to the address that load_late() has found. Call load_late() first.
//
//   caller -- SSL_new --> our SSL_new: jmp *drun_late_SSL_new --> libssl's SSL_new
//
// An executable with these functions must not be linked with the library as well; --as-needed and a
// test ensure that. On processors without a jump here, and for sanitizers that instrument the
// library, drun is linked with it as usual (launcher/CMakeLists.txt).
//
// Thread:  load_late: one call at a time; the functions: as the library's documentation states.
// Errors:  System, with the loader's message.
#pragma once

#include <dlfcn.h>

#include <span>
#include <string>

#include "rendezvous/base/result.h"

#if defined(__x86_64__)
#define DRUN_JUMP_TO(place) "endbr64\n jmp *" place "(%rip)\n"
#elif defined(__aarch64__)
#define DRUN_JUMP_TO(place) \
  "bti c\n adrp x16, " place "\n ldr x16, [x16, :lo12:" place "]\n br x16\n"
#endif

// Defines the function, hidden in the executable, and the place where load_late() writes its
// address.
#define DRUN_LATE_FUNCTION(name)                                              \
  extern "C" __attribute__((visibility("hidden"))) void* drun_late_##name;    \
  void* drun_late_##name = nullptr;                                           \
  asm(".pushsection .text\n.globl " #name "\n.hidden " #name "\n.type " #name \
      ", @function\n.p2align 4\n" #name                                       \
      ":\n" DRUN_JUMP_TO("drun_late_" #name) ".size " #name ", .-" #name "\n.popsection\n");
#define DRUN_LATE_ENTRY(name) LateFunction{#name, &drun_late_##name},

namespace drun {

struct LateFunction {
  const char* name;
  void** place;
};

// A second call does nothing. `remedy`: how to get the library, "install libssl3". The library is
// never closed, because its functions may be in use until the process exits.
inline Result<void> load_late(const char* library, std::span<const LateFunction> functions,
                              const std::string& remedy) {
  const auto unusable = [&] {
    const char* const reason = dlerror();
    return Error{ErrorCode::System, std::string("cannot load ") + library + " (" +
                                        (reason != nullptr ? reason : "no reason given") + "); " +
                                        remedy};
  };
  if (functions.empty() || *functions.back().place != nullptr) return {};
  void* const loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) return unusable();
  for (const LateFunction& function : functions) {
    void* const found = dlsym(loaded, function.name);
    if (found == nullptr) return unusable();
    *function.place = found;
  }
  return {};
}

// Finds a function of a library that was loaded with dlopen. Null if the library has none of that
// name.
template <typename Function>
void find_function(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace drun

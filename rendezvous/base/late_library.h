// edge. A shared library of C functions that is loaded when something needs it, and not at each
// start: finding OpenSSL's own symbols takes longer than the rest of drun --help, and most jobs
// have no secret.
//
// The functions keep their names, so that callers, such as Asio, need no change: each is a jump to
// the address that load() has found. Call load() before the first.
//
//   caller -- SSL_new --> our SSL_new: jmp *drun_late_SSL_new --> libssl's SSL_new
//
// An executable with these in it must not be linked with the library as well: --as-needed sees to
// that, and a test. Where there is no jump for the processor, or a sanitizer is to look into the
// library, it is linked as usual (launcher/CMakeLists.txt).
//
// Thread:  load: one at a time; the functions: as the library says.
// Errors:  System, with the loader's words.
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

// Defines the function, for the executable alone, and the place where load() writes its address.
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

// Once: a second call does nothing. `remedy` says what brings the library: "install libssl3".
Result<void> load_late(const char* library, std::span<const LateFunction> functions,
                       const std::string& remedy);

// edge. A function of a library that was loaded by dlopen.
// Thread: any.

// Null when the library has none of that name.
template <typename Function>
void find_function(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace drun

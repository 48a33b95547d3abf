// edge. A function of a library that was loaded by dlopen.
// Thread: any.
#pragma once

#include <dlfcn.h>

namespace drun {

// Null when the library has none of that name.
template <typename Function>
void find_function(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace drun

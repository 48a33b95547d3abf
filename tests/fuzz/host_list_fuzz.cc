// Any host list from engines or users is either rejected, or gives names that are themselves host
// lists of exactly that one host.
#include <cstdlib>
#include <string_view>

#include "launcher/engines/host_list.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto hosts = drun::engines::expand_host_list(text);
  if (!hosts) return 0;
  if (hosts->empty() || hosts->size() > drun::engines::kMostHosts) std::abort();
  for (const std::string* host : {&hosts->front(), &hosts->back()}) {
    const auto again = drun::engines::expand_host_list(*host);
    if (!again || again->size() != 1 || again->front() != *host) std::abort();
  }
  return 0;
}

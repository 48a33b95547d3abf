// Host lists as engines and users write them: any text is either refused, or gives names that are
// host lists of one host each, namely themselves.
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

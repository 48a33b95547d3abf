// Any GPU list in Slurm's format is either rejected, or its count equals that of its expansion.
#include <cstdlib>
#include <string_view>

#include "launcher/engines/engine_facts.h"
#include "launcher/engines/host_list.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto count = drun::engines::size_of_list(text);
  if (count && (*count < 1 || *count > drun::engines::kMostCount)) std::abort();
  if (count && *count > 1 && !drun::engines::is_list(text)) std::abort();
  return 0;
}

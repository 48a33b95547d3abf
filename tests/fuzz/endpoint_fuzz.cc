// Any text of an endpoint, from users or messages, is either rejected or survives a round trip.
#include <cstdlib>
#include <string_view>

#include "rendezvous/net/endpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto endpoint = drun::parse_endpoint(text, 29500);
  if (!endpoint) return 0;
  const auto again = drun::parse_endpoint(drun::to_string(*endpoint), 1);
  if (!again || *again != *endpoint) std::abort();
  return 0;
}

// Any text of hosts, from a file or the command line, is either rejected, or gives distinct hosts
// that ssh accepts as hosts and that parse to the same hosts when written again.
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "launcher/engines/host_list.h"
#include "launcher/hosts/host_pool.h"
#include "rendezvous/net/endpoint.h"

namespace {

std::string written(const drun::hosts::PoolHost& host) {
  return (host.user.empty() ? "" : host.user + "@") + drun::bracketed_host(host.name) +
         (host.slots ? ":" + std::to_string(*host.slots) : "");
}

void check(const drun::Result<drun::hosts::Pool>& pool) {
  if (!pool) return;
  if (pool->empty() || pool->size() > drun::engines::kMostHosts) std::abort();
  std::set<std::string> names;
  std::string again;
  for (const drun::hosts::PoolHost& host : *pool) {
    if (host.name.empty() || host.name.front() == '-') std::abort();
    if (!host.user.empty() && host.user.front() == '-') std::abort();
    if (host.slots && (*host.slots < 1 || *host.slots > drun::hosts::kMostSlots)) std::abort();
    if (!names.insert(host.name).second) std::abort();
    if (pool->size() <= 64) again += written(host) + "\n";
  }
  if (pool->size() > 64) return;
  const auto file = drun::hosts::parse_host_file(again);
  const auto list = drun::hosts::parse_hosts(again);
  if (!file || *file != *pool || !list || *list != *pool) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(drun::hosts::parse_host_file(text));
  const auto pool = drun::hosts::parse_hosts(text.substr(0, text.find('\0')));
  check(pool);
  const std::size_t zero = text.find('\0');
  if (!pool || zero == text.npos) return 0;
  const std::string_view choice = text.substr(zero + 1);
  if (const auto left = drun::hosts::included(*pool, choice); left && left->empty()) std::abort();
  if (const auto left = drun::hosts::excluded(*pool, choice); left && left->empty()) std::abort();
  return 0;
}

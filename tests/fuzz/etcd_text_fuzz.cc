// Fuzzes the answers of an etcd (or another server in its place), and the values of a job's keys.
#include <cstdlib>
#include <string_view>
#include <variant>

#include "rendezvous/leader/etcd_calls.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace drun::rendezvous::etcd;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Keys keys{"/drun/a/leader", "/drun/a/state"};
  const Call calls[] = {Look{}, Grant{}, Renew{}, Claim{}, Store{}, Clear{}, Revoke{}};
  for (const Call& call : calls) {
    for (const int status : {200, 404}) static_cast<void>(answer_of(call, keys, status, text));
  }
  static_cast<void>(watch_message(keys, text));
  if (const auto leader = leader_of(text); leader && leader_of(text_of(*leader)) != leader)
    std::abort();
  const auto state = state_of(text);
  // Names can be truncated.
  if (state && !state_of(text_of(*state))) std::abort();
  return 0;
}

// core. The key of one round of a job with a secret. The workers of the round prove to each other
// that they have it when they connect (worker_lib/tcp). It does not reveal the secret or the keys
// of other rounds.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/net/secret.h"

namespace drun {

// The variable with the path of the file that contains the key.
inline constexpr const char* kWorkerKeyVariable = "DRUN_WORKER_KEY_FILE";
// Of the text of a key: hexadecimal digits.
inline constexpr std::size_t kWorkerKeyDigits = 64;

// HKDF of secret, run id and round. Loads OpenSSL; errors: System, if it has none of the functions.
// Defined in tls_session.cc, which includes OpenSSL's headers.
Result<std::string> worker_key(const Secret& secret, std::string_view run_id, int round);

}  // namespace drun

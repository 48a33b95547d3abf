// edge. The worker key of a job with a secret: the ranks prove to each other that they have it.
// drun passes it in a file (rendezvous/tls/secret.h).
//
// Thread:  any.
// Errors:  throws BackendFailure (System) with the file, the reason and the remedy.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "worker_lib/tcp/frames.h"

namespace drun::worker::tcp {

class JobKey {
 public:
  // The key of this process; absent if DRUN_WORKER_KEY_FILE is not set. Loads libcrypto, which is
  // needed for the proofs.
  static std::optional<JobKey> of_process();

  // HMAC-SHA256.
  Proof prove(std::string_view text) const;

 private:
  std::array<char, 32> bytes_{};
};

// Takes the same time for all proofs.
bool is_same(std::string_view left, std::string_view right);

}  // namespace drun::worker::tcp

// core. The secret that the nodes of a job share, and the keys of its rounds.
//
// Copies share the bytes, which are wiped when the last copy is destroyed. Messages show only the
// source of the secret, never a byte of it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"

namespace drun {

class Secret {
 public:
  static constexpr std::size_t kLeastBytes = 16;
  static constexpr std::size_t kMostBytes = 4096;

  // Removes line ends at the end of `bytes`. `from`: "/home/me/secret", "DRUN_SECRET". Errors:
  // Usage, with the source, the reason and the remedy.
  static Result<Secret> make(std::string bytes, std::string from);

  const std::string& bytes() const { return *bytes_; }
  const std::string& from() const { return from_; }
  bool operator==(const Secret& other) const {
    return bytes() == other.bytes() && from_ == other.from_;
  }

 private:
  Secret(std::shared_ptr<const std::string> bytes, std::string from)
      : bytes_(std::move(bytes)), from_(std::move(from)) {}

  std::shared_ptr<const std::string> bytes_;
  std::string from_;
};

// Overwrites the string's memory.
void wipe(std::string& bytes);

// --- The key of one round of a job with a secret. The workers of the round prove to each other
// that they have it when they connect (worker_lib/tcp). It does not reveal the secret or the keys
// of other rounds.

// The variable with the path of the file that contains the key.
inline constexpr const char* kWorkerKeyVariable = "DRUN_WORKER_KEY_FILE";
// Of the text of a key: hexadecimal digits.
inline constexpr std::size_t kWorkerKeyDigits = 64;

// HKDF of secret, run id and round. Loads OpenSSL; errors: System, if it has none of the functions.
// Defined in tls_session.cc, which includes OpenSSL's headers.
Result<std::string> worker_key(const Secret& secret, std::string_view run_id, int round);

}  // namespace drun

// core. The secret that the nodes of a job share.
//
// Shape:   bytes, and their source; only the source is ever shown.
// Owner:   a value; copies share the bytes, which are wiped with the last of them.
// Thread:  any, one at a time.
// Errors:  make: Usage, naming the source, the reason and the remedy; never a byte of the secret.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "rendezvous/base/result.h"

namespace drun {

class Secret {
 public:
  static constexpr std::size_t kLeastBytes = 16;
  static constexpr std::size_t kMostBytes = 4096;

  // Line ends behind `bytes` are no part of it. `from`: "/home/me/secret", "DRUN_SECRET".
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

// Leaves nothing of it in this memory.
void wipe(std::string& bytes);

}  // namespace drun

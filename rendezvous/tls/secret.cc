#include "rendezvous/tls/secret.h"

#include <string.h>

#include <utility>

namespace drun {
namespace {

constexpr const char kRemedy[] = "; make one: openssl rand -hex 32 > FILE";

struct Wiper {
  void operator()(const std::string* bytes) const {
    const std::unique_ptr<std::string> last(const_cast<std::string*>(bytes));
    wipe(*last);
  }
};

}  // namespace

void wipe(std::string& bytes) {
  explicit_bzero(bytes.data(), bytes.capacity());
  bytes.clear();
}

Result<Secret> Secret::make(std::string bytes, std::string from) {
  std::size_t size = bytes.size();
  while (size > 0 && (bytes[size - 1] == '\n' || bytes[size - 1] == '\r')) --size;
  // Copies the part: truncating `bytes` would leave the rest in memory, and moving it might.
  const auto kept = std::shared_ptr<const std::string>(new std::string(bytes, 0, size), Wiper{});
  wipe(bytes);
  if (size == 0) return Error{ErrorCode::Usage, from + ": the secret is empty" + kRemedy};
  if (size < kLeastBytes)
    return Error{ErrorCode::Usage, from + ": a secret of " + std::to_string(size) +
                                       " bytes can be guessed; at least " +
                                       std::to_string(kLeastBytes) + " are needed" + kRemedy};
  if (size > kMostBytes)
    return Error{ErrorCode::Usage, from + ": a secret has at most " + std::to_string(kMostBytes) +
                                       " bytes" + kRemedy};
  return Secret(kept, std::move(from));
}

}  // namespace drun

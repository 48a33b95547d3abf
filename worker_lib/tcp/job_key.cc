#include "worker_lib/tcp/job_key.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "drun/backend.h"
#include "rendezvous/base/late_library.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/tls/secret.h"
#include "worker_lib/tcp/sockets.h"

namespace drun::worker::tcp {
namespace {

// The two functions of libcrypto, found at run time: the library for workers must need only glibc.
// HMAC(3), EVP_sha256(3).
struct Crypto {
  using Digest = const void* (*)();
  using Hmac = unsigned char* (*)(const void* digest, const void* key, int key_bytes,
                                  const unsigned char* text, std::size_t text_bytes,
                                  unsigned char* proof, unsigned* proof_bytes);
  Digest sha256 = nullptr;
  Hmac hmac = nullptr;
  std::string lack{};  // why they cannot be used; empty: they can
};

const Crypto& crypto() {
  static const Crypto loaded = [] {
    static void* sha256 = nullptr;
    static void* hmac = nullptr;
    const std::array functions{LateFunction{"EVP_sha256", &sha256}, LateFunction{"HMAC", &hmac}};
    Crypto made;
    const Result<void> result =
        load_late("libcrypto.so.3", functions,
                  "the job has a secret, so connections between ranks need OpenSSL 3: install "
                  "libssl3, or choose another backend");
    if (!result) made.lack = result.error().message;
    made.sha256 = reinterpret_cast<Crypto::Digest>(sha256);
    made.hmac = reinterpret_cast<Crypto::Hmac>(hmac);
    return made;
  }();
  return loaded;
}

BackendFailure unusable(const char* path, const std::string& why) {
  return {WorkerError::Kind::System, std::nullopt,
          std::string("cannot read the job's worker key from ") + path + ", which " +
              kWorkerKeyVariable + " names: " + why +
              "; a wrapper or container must give the program this file and variable"};
}

}  // namespace

std::optional<JobKey> JobKey::of_process() {
  const char* const path = std::getenv(kWorkerKeyVariable);
  if (path == nullptr) return std::nullopt;
  const UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::array<char, kWorkerKeyDigits + 1> text{};
  const ssize_t got = fd ? ::read(fd.get(), text.data(), text.size()) : -1;
  if (got < 0) throw unusable(path, std::strerror(errno));
  const auto bytes =
      bytes_of_hex<kWorkerKeyDigits / 2>({text.data(), static_cast<std::size_t>(got)});
  if (!bytes) throw unusable(path, "the file contains no key");
  if (!crypto().lack.empty())
    throw BackendFailure(WorkerError::Kind::System, std::nullopt, crypto().lack);
  JobKey key;
  key.bytes_ = *bytes;
  return key;
}

Proof JobKey::prove(std::string_view text) const {
  Proof proof{};
  unsigned proof_bytes = 0;
  const auto* const made =
      crypto().hmac(crypto().sha256(), bytes_.data(), static_cast<int>(bytes_.size()),
                    reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                    reinterpret_cast<unsigned char*>(proof.data()), &proof_bytes);
  if (made == nullptr || proof_bytes != proof.size())
    throw BackendFailure(WorkerError::Kind::System, std::nullopt,
                         "OpenSSL has no HMAC with SHA-256, which a job with a secret needs");
  return proof;
}

bool is_same(std::string_view left, std::string_view right) {
  unsigned difference = left.size() == right.size() ? 0 : 1;
  for (std::size_t i = 0; i < left.size() && i < right.size(); ++i)
    difference |= static_cast<unsigned char>(left[i]) ^ static_cast<unsigned char>(right[i]);
  return difference == 0;
}

}  // namespace drun::worker::tcp

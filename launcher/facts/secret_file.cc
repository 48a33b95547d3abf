#include "launcher/facts/secret_file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <optional>

#include "rendezvous/base/unique_fd.h"

namespace drun {
namespace {

// The secret, plus room for line ends.
constexpr std::size_t kMostSecretFileBytes = Secret::kMostBytes + 16;

Error unfit(const std::string& path, const std::string& reason) {
  return Error{ErrorCode::Usage, path + ": " + reason};
}

std::optional<Error> objection(const std::string& path, const struct stat& facts) {
  if (!S_ISREG(facts.st_mode))
    return unfit(path, "not a regular file; make one: (umask 077; openssl rand -hex 32 > FILE)");
  if (facts.st_uid != geteuid() && facts.st_uid != 0)
    return unfit(path, "it belongs to user " + std::to_string(facts.st_uid) +
                           ", who could change it; use a file that you own");
  constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
  if ((facts.st_mode & kOthers) == 0) return std::nullopt;
  std::array<char, 8> mode{};
  std::snprintf(mode.data(), mode.size(), "%04o", static_cast<unsigned>(facts.st_mode) & 07777U);
  return unfit(path, "others than its owner have access to it (mode " + std::string(mode.data()) +
                         "); chmod 600 " + path);
}

}  // namespace

Result<Secret> read_secret_file(const std::string& path) {
  if (path.empty())
    return unfit("\"\"", "no file is named; make one: (umask 077; openssl rand -hex 32 > FILE)");
  // O_NONBLOCK: opening a pipe would block.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat facts {};
  if (!fd || fstat(fd.get(), &facts) != 0)
    return unfit(
        path, system_message(errno) +
                  (errno == ENOENT ? "; make one: (umask 077; openssl rand -hex 32 > " + path + ")"
                                   : ""));
  if (auto error = objection(path, facts)) return *std::move(error);
  std::string bytes;
  bytes.reserve(kMostSecretFileBytes +
                1);  // avoids reallocation, which would leave copies of the secret
  std::array<char, 512> piece{};
  ssize_t size = 1;
  while (size > 0 && bytes.size() <= kMostSecretFileBytes) {
    size = ::read(fd.get(), piece.data(), piece.size());
    if (size < 0 && errno == EINTR) {
      size = 1;
      continue;
    }
    if (size < 0) return unfit(path, system_message(errno));
    bytes.append(piece.data(), static_cast<std::size_t>(size));
  }
  explicit_bzero(piece.data(), piece.size());
  return Secret::make(std::move(bytes), path);
}

}  // namespace drun

#include "launcher/facts/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "rendezvous/base/unique_fd.h"

// Streams and std::filesystem would take several times as long, and drun reads about ten files and
// folders on each start.
namespace drun {
namespace {

namespace fs = std::filesystem;

// Of UTF-8. Editors on Windows write it.
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// Returns whether the end of the file was reached. Then, or at `most_bytes`, stops.
bool read_file(const std::string& path, std::size_t most_bytes, std::string& text) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> part;  // most files have one line
  while (text.size() < most_bytes) {
    const std::size_t most = std::min(part.size(), most_bytes - text.size());
    const ssize_t count = ::read(fd.get(), part.data(), most);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count == 0;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  return false;
}

// A FIFO, unlike this pipe, may never get a writer.
bool is_pipe_of_shell(const std::string& path) {
  struct statfs facts {};
  return statfs(path.c_str(), &facts) == 0 && facts.f_type == PIPEFS_MAGIC;
}

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

}  // namespace

std::string text_of_file(const std::string& path) {
  constexpr std::size_t kMostBytes = 64 * 1024;
  std::string text;
  read_file(path, kMostBytes, text);
  return text;
}

std::optional<std::string> whole_text_of(const std::string& path) {
  constexpr std::size_t kMostBytes = std::size_t{4} << 20;
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) return std::nullopt;
  if (!S_ISREG(facts.st_mode) && !is_pipe_of_shell(path)) return std::nullopt;
  return all_text_of(path, kMostBytes);
}

std::optional<std::string> all_text_of(const std::string& path, std::size_t most_bytes) {
  std::string text;
  if (!read_file(path, most_bytes + 1, text)) return std::nullopt;
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

std::vector<std::string> names_in(const std::string& folder, std::string_view prefix) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, CloseFolder> opened(opendir(folder.c_str()));
  while (const dirent* const entry = opened ? readdir(opened.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    if (name.starts_with(prefix) && name != "." && name != "..") names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// --- write_file()

namespace {

bool is_own_link(const std::string& path) {
  struct stat facts {};
  return lstat(path.c_str(), &facts) == 0 && (facts.st_uid == geteuid() || facts.st_uid == 0);
}

// The descriptor of stdout or stderr if that is this regular file, as for /dev/stdout. A new file
// in its place would lose the output.
std::optional<int> own_output(const std::string& path) {
  struct stat file {};
  if (stat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode)) return std::nullopt;
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat output {};
    if (fstat(fd, &output) == 0 && output.st_dev == file.st_dev && output.st_ino == file.st_ino)
      return fd;
  }
  return std::nullopt;
}

// A device or a pipe. A FIFO without a reader would block; then the error is ENXIO.
std::FILE* open_special(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd || fcntl(fd.get(), F_SETFL, 0) != 0) return nullptr;  // writes wait for a slow reader
  return fdopen(fd.release(), "w");
}

// Readable only by this user, or with the permissions of the file that it replaces. Does not follow
// links.
std::FILE* new_file(const std::string& place, const std::string& replaced) {
  std::remove(place.c_str());  // of an earlier process with the same pid
  const int fd = open(place.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return nullptr;
  struct stat facts {};
  if (lstat(replaced.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == geteuid())
    static_cast<void>(fchmod(fd, facts.st_mode & 0777));
  return fdopen(fd, "w");
}

}  // namespace

Result<void> write_file(const std::string& path, std::string_view text) {
  // Replace the target of a symbolic link, not the link (which may be /dev/stdout). Write directly
  // to devices and pipes. In a folder that others can write to, a link may have been planted by
  // another user.
  std::error_code ec;
  const std::optional<int> output = own_output(path);
  if (!output && fs::is_symlink(path, ec)) {
    if (!is_own_link(path))
      return Error{ErrorCode::System, "cannot write " + path +
                                          ": it is a link of another user's; remove it, or choose "
                                          "another file"};
    const std::string target = fs::canonical(path, ec).string();
    if (!ec && fs::is_regular_file(target, ec)) return write_file(target, text);
  }
  const bool is_special = output || (fs::exists(path, ec) && !fs::is_regular_file(path, ec));
  const std::string place = is_special ? path : path + "." + std::to_string(getpid()) + ".part";
  std::FILE* file = output       ? fdopen(fcntl(*output, F_DUPFD_CLOEXEC, 0), "w")
                    : is_special ? open_special(place)
                                 : new_file(place, path);
  if (file == nullptr && errno == ENXIO && fs::is_fifo(path, ec))
    return Error{ErrorCode::System, "cannot write " + path + ": it is a pipe without a reader"};
  if (file == nullptr) return system_error("write " + path, errno);
  const bool is_written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int write_error = errno;
  const bool is_closed = std::fclose(file) == 0;
  if (is_written && is_closed && (is_special || std::rename(place.c_str(), path.c_str()) == 0))
    return {};
  const Error error = system_error("write " + path, is_written ? errno : write_error);
  if (!is_special) std::remove(place.c_str());
  return error;
}

// --- The secret file

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

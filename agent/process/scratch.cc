#include "agent/process/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "agent/process/guardian.h"
#include "agent/spawn/raw_syscall.h"
#include "rendezvous/base/unique_fd.h"

namespace drun::agent {
namespace {

std::string& parent() {
  static std::string directory;
  return directory;
}

// Scratch files are a few kilobytes per worker.
constexpr std::uint64_t kLeastRoomBytes = 1024 * 1024;

// True also for file systems that do not count their blocks.
bool has_room(const std::string& directory) {
  struct statvfs about {};
  if (statvfs(directory.c_str(), &about) != 0 || about.f_blocks == 0) return true;
  return std::uint64_t{about.f_bavail} * about.f_frsize >= kLeastRoomBytes;
}

Result<std::string> make_in(const std::string& base, std::string_view name) {
  const std::string pattern = base + "/" + std::string(kScratchPrefix) + std::string(name);
  int error_number = 0;
  for (int tries = 0; tries < 3; ++tries) {
    std::string path = pattern + ".XXXXXX";
    if (::mkdtemp(path.data()) == nullptr)
      return system_error("make a directory in " + base, errno);
    if (own_scratch_directory(path)) {
      remove_if_killed(path);
      return path;
    }
    error_number = errno;
    ::rmdir(path.c_str());
  }
  Error error = system_error("enter a new directory in " + base, error_number);
  if (error_number == EACCES)
    error.message += "; set a umask that leaves the owner all permissions";
  return error;
}

}  // namespace

Result<std::string> make_scratch_directory_in(const std::string& base, std::string_view name) {
  std::error_code ec;
  Result<std::string> made = make_in(std::filesystem::absolute(base, ec).string(), name);
  if (made) remove_abandoned_scratch(base);
  return made;
}

Result<std::string> temporary_directory() {
  std::string chosen = "/tmp";
  for (const char* const variable : {"TEMPDIR", "TEMP", "TMP", "TMPDIR"})  // the last one wins
    if (const char* const value = std::getenv(variable); value != nullptr && *value != '\0')
      chosen = value;
  std::error_code ec;
  if (std::filesystem::is_directory(chosen, ec)) return chosen;
  return system_error("use the temporary directory " + chosen, ec ? ec.value() : ENOTDIR);
}

namespace {

Result<std::string> make_on_disk(std::string_view name) {
  const Result<std::string> base = temporary_directory();
  return base ? make_scratch_directory_in(*base, name) : base;
}

}  // namespace

Result<std::string> make_scratch_directory(std::string_view name) {
  for (const std::string& base : {parent(), std::string(kMemoryDirectory)})
    if (!base.empty() && has_room(base))
      if (Result<std::string> made = make_in(base, name)) return made;
  Result<std::string> made = make_on_disk(name);
  if (made) return made;
  return with_context(made.error(), std::string("cannot use ") + kMemoryDirectory);
}

bool keep_scratch_directory(const std::string& path) {
  struct stat about {};
  if (lstat(path.c_str(), &about) == 0)  // another user may have made one with its name
    return S_ISDIR(about.st_mode) && about.st_uid == geteuid();
  const std::filesystem::path above = std::filesystem::path(path).parent_path();
  if (is_scratch_name(above.filename().string()) && !keep_scratch_directory(above.string()))
    return false;
  return mkdir(path.c_str(), 0700) == 0 && own_scratch_directory(path);
}

ScratchDirectory::~ScratchDirectory() {
  if (is_made()) remove_tree(path_.c_str());
}

Result<void> ScratchDirectory::make() {
  if (is_made() && keep_scratch_directory(path_)) return {};
  Result<std::string> made = make_scratch_directory(name_);
  if (!made) return made.error();
  path_ = *std::move(made);
  return {};
}

bool ScratchDirectory::move_to_disk() {
  if (std::exchange(has_moved_, true)) return false;
  Result<std::string> made = make_on_disk(name_);
  if (!made) return false;
  if (is_made()) remove_tree(path_.c_str());
  path_ = *std::move(made);
  return true;
}

void ScratchDirectory::clear() const {
  if (is_made()) remove_contents_of(path_.c_str());
}

bool is_in_memory_directory(std::string_view path) {
  return path.starts_with(std::string(kMemoryDirectory) + "/");
}

bool is_out_of_room(int error_number) { return error_number == ENOSPC || error_number == EDQUOT; }

void set_scratch_parent(std::string directory) { parent() = std::move(directory); }

const std::string& scratch_parent() { return parent(); }

namespace {

constexpr int kMostTreeDepth = 8;
constexpr std::size_t kRandomCharacters = 6;

int open_directory(int parent, const char* name) {
  return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// What may still be removed.
struct RemovalLimits {
  dev_t device = 0;
  int entries = kMostRemoved;
};

bool remove_contents(int directory, int depth, RemovalLimits& limits);

// Linux reports EISDIR for a directory.
bool remove_entry(int directory, const char* name, int depth, RemovalLimits& limits) {
  if (unlinkat(directory, name, 0) == 0) return true;
  if (errno != EISDIR || depth == kMostTreeDepth) return false;
  const UniqueFd below(open_directory(directory, name));
  struct stat about {};
  const bool is_entered = below && fstat(below.get(), &about) == 0 && about.st_dev == limits.device;
  if (is_entered) remove_contents(below.get(), depth + 1, limits);
  return is_entered && unlinkat(directory, name, AT_REMOVEDIR) == 0;
}

// Reads the directory again after removals, because they may move entries. False: at the limit.
bool remove_contents(int directory, int depth, RemovalLimits& limits) {
  alignas(DirectoryEntry) std::array<char, 4096> entries;
  bool has_removed = true;
  bool is_within = true;
  while (has_removed && is_within) {
    has_removed = false;
    if (lseek(directory, 0, SEEK_SET) != 0) return true;
    for_each_name(directory, entries, [&](const char* name) {
      if (std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0) return true;
      is_within = limits.entries-- > 0;
      if (is_within) has_removed = remove_entry(directory, name, depth, limits) || has_removed;
      return is_within;
    });
  }
  return is_within;
}

// Where flock(2) needs no server, and no other host sees the files.
bool is_on_local_file_system(int fd) {
  struct statfs about {};
  if (fstatfs(fd, &about) != 0) return false;
  constexpr std::array<std::uint32_t, 9> kLocal{
      0x01021994,  // tmpfs
      0x858458f6,  // ramfs
      0x0000ef53,  // ext2, ext3, ext4
      0x58465342,  // xfs
      0x9123683e,  // btrfs
      0x2fc12fc1,  // zfs
      0xf2f52010,  // f2fs
      0xca451a4e,  // bcachefs
      0x794c7630,  // overlayfs
  };
  return std::find(kLocal.begin(), kLocal.end(), static_cast<std::uint32_t>(about.f_type)) !=
         kLocal.end();
}

}  // namespace

bool is_scratch_name(std::string_view name) {
  if (!name.starts_with(kScratchPrefix)) return false;
  name.remove_prefix(kScratchPrefix.size());
  const std::size_t dot = name.find('.');
  if (dot == 0 || dot == name.npos || name.size() != dot + 1 + kRandomCharacters) return false;
  return std::all_of(name.begin() + static_cast<std::ptrdiff_t>(dot) + 1, name.end(),
                     [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; });
}

bool holds_secret(const char* path) { return std::strstr(path, ".worker_key.") != nullptr; }

void remove_contents_of(const char* path) {
  const UniqueFd directory(open_directory(AT_FDCWD, path));
  struct stat about {};
  if (!directory || fstat(directory.get(), &about) != 0) return;
  RemovalLimits limits{.device = about.st_dev};
  remove_contents(directory.get(), 0, limits);
}

void remove_tree(const char* path) {
  remove_contents_of(path);
  rmdir(path);
}

bool own_scratch_directory(const std::string& path) {
  UniqueFd directory(open_directory(AT_FDCWD, path.c_str()));
  if (!directory) return false;
  if (!is_on_local_file_system(directory.get())) return true;
  // Another process holds its lock only while it removes the directory.
  // Where there is no flock(2) at all, the others have none either.
  if (flock(directory.get(), LOCK_SH | LOCK_NB) != 0)
    return errno != EWOULDBLOCK && errno != ENOLCK;
  struct stat about {};
  if (fstat(directory.get(), &about) != 0 || about.st_nlink == 0) return false;
  directory.release();  // the lock ends with the process
  return true;
}

void remove_abandoned_scratch(const std::string& base) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(base.c_str()), closedir);
  if (!entries || !is_on_local_file_system(dirfd(entries.get()))) return;
  RemovalLimits limits;
  for (int scanned = 0; scanned < kMostScratchEntries; ++scanned) {
    const dirent* entry = readdir(entries.get());
    if (entry == nullptr) return;
    const char* name = static_cast<const char*>(entry->d_name);
    if (!is_scratch_name(name)) continue;
    const UniqueFd directory(open_directory(dirfd(entries.get()), name));
    struct stat about {};
    if (!directory || fstat(directory.get(), &about) != 0) continue;
    const bool is_ours = about.st_uid == geteuid() && (about.st_mode & 07777) == 0700;
    if (!is_ours || flock(directory.get(), LOCK_EX | LOCK_NB) != 0) continue;
    limits.device = about.st_dev;
    if (!remove_contents(directory.get(), 0, limits)) return;
    unlinkat(dirfd(entries.get()), name, AT_REMOVEDIR);
  }
}

}  // namespace drun::agent

#include "worker_lib/store/file_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "drun/error.h"
#include "rendezvous/base/bytes.h"
#include "rendezvous/base/result.h"

namespace drun::worker {
namespace {

using Kind = WorkerError::Kind;

constexpr std::string_view kMagic = "drun store file\n";
constexpr std::uint64_t kHeader = kMagic.size() + sizeof(std::uint64_t);
// Addresses and flags are what goes in here; more is a mistake.
constexpr std::uint64_t kMostKeyBytes = 64 << 10;
constexpr std::uint64_t kMostValueBytes = 16 << 20;
constexpr std::uint64_t kMostFileBytes = 256 << 20;

[[noreturn]] void fail(Kind kind, const std::string& message) {
  throw WorkerError({.kind = kind, .message = message});
}
[[noreturn]] void fail_to(const std::string& action, const std::string& path) {
  fail(Kind::System,
       "cannot " + action + " the store's file " + path + ": " + system_message(errno));
}

}  // namespace

FileLog::FileLog(std::string path) : path_(std::move(path)) { open_file(); }

void FileLog::open_file() {
  fd_ = UniqueFd(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd_) fail_to("open", path_);
  end_ = 0;
}

// Locks of the open file description: they also hold between threads, and NFS knows them.
bool FileLog::try_lock() {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (fcntl(fd_.get(), F_OFD_SETLK, &whole) == 0) return true;
  if (errno != EAGAIN && errno != EACCES && errno != EINTR) fail_to("lock", path_);
  return false;
}

void FileLog::release() noexcept {
  struct flock whole {};
  whole.l_type = F_UNLCK;
  whole.l_whence = SEEK_SET;
  fcntl(fd_.get(), F_OFD_SETLK, &whole);
}

// The last rank of an earlier group may have removed the file while we waited for its lock.
bool FileLog::is_still_there() const {
  struct stat ours {};
  struct stat there {};
  return fstat(fd_.get(), &ours) == 0 && stat(path_.c_str(), &there) == 0 &&
         ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

void FileLog::acquire(Deadline deadline, const OnRecord& on_record) {
  auto pause = std::chrono::microseconds(50);  // its holder keeps it for some microseconds
  while (!try_lock()) {
    if (std::chrono::steady_clock::now() >= deadline) {
      fail(Kind::Timeout, "another process keeps the lock of the store's file " + path_);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(20'000));
  }
  if (end_ == 0 && !is_still_there()) {
    open_file();
    return acquire(deadline, on_record);
  }
  try {
    read_new(on_record);
  } catch (...) {
    release();
    throw;
  }
}

void FileLog::read_at(std::uint64_t at, void* data, std::size_t size_bytes) {
  auto* bytes = static_cast<char*>(data);
  while (size_bytes > 0) {
    const ssize_t count = pread(fd_.get(), bytes, size_bytes, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_to("read", path_);
    if (count == 0) fail_damaged();
    bytes += count;
    at += static_cast<std::uint64_t>(count);
    size_bytes -= static_cast<std::size_t>(count);
  }
}

void FileLog::write_at(std::uint64_t at, const void* data, std::size_t size_bytes) {
  const auto* bytes = static_cast<const char*>(data);
  while (size_bytes > 0) {
    const ssize_t count = pwrite(fd_.get(), bytes, size_bytes, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail_to("write", path_);
    bytes += count;
    at += static_cast<std::uint64_t>(count);
    size_bytes -= static_cast<std::size_t>(count);
  }
}

// Bytes of records; of an empty file, which gets its header.
std::uint64_t FileLog::read_size() {
  struct stat file {};
  if (fstat(fd_.get(), &file) != 0) fail_to("read", path_);
  const auto file_bytes = static_cast<std::uint64_t>(file.st_size);
  std::array<char, kHeader> header{};
  const std::string_view there(header.data(), std::min(file_bytes, kHeader));
  read_at(0, header.data(), there.size());
  if (there.substr(0, kMagic.size()) != kMagic.substr(0, there.size()))
    fail(Kind::Store, path_ + " is not a file of drun's store; choose another path");
  std::uint64_t size_bytes = 0;
  if (there.size() < kHeader) {  // empty, or its first writer died
    write_at(0, kMagic.data(), kMagic.size());
    write_at(kMagic.size(), &size_bytes, sizeof size_bytes);
    return 0;
  }
  std::memcpy(&size_bytes, &header[kMagic.size()], sizeof size_bytes);
  if (size_bytes < end_ || size_bytes > std::min(kMostFileBytes, file_bytes - kHeader))
    fail_damaged();
  return size_bytes;
}

void FileLog::read_new(const OnRecord& on_record) {
  const std::uint64_t size_bytes = read_size();
  std::string bytes(size_bytes - end_, '\0');
  read_at(kHeader + end_, bytes.data(), bytes.size());
  ByteReader reader(bytes);
  while (!reader.at_end()) {
    std::string key(reader.text(kMostKeyBytes));
    std::string value(reader.text(kMostValueBytes));
    if (reader.failed()) fail_damaged();
    on_record(std::move(key), std::move(value));
  }
  end_ = size_bytes;
}

void FileLog::append(const std::string& key, const std::string& value) {
  std::string record;
  ByteWriter writer(record);
  writer.text(key);
  writer.text(value);
  if (key.size() > kMostKeyBytes || value.size() > kMostValueBytes ||
      end_ + record.size() > kMostFileBytes) {
    fail(Kind::Store, "a key of " + std::to_string(key.size()) + " and a value of " +
                          std::to_string(value.size()) +
                          " bytes are too much for the store's file " + path_ +
                          "; keep large things elsewhere");
  }
  write_at(kHeader + end_, record.data(), record.size());
  const std::uint64_t size_bytes = end_ + record.size();
  write_at(kMagic.size(), &size_bytes, sizeof size_bytes);  // counts from here on
  end_ = size_bytes;
}

void FileLog::fail_damaged() const {
  fail(Kind::Store, "the store's file " + path_ + " is damaged; remove it");
}

void FileLog::remove_file() noexcept { unlink(path_.c_str()); }

}  // namespace drun::worker

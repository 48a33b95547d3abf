// edge. A file of records that several processes append to. All of them read the records in the
// same order.
//
//   "drun store file" 0x0A | bytes of records | record ...   record: size, key, size, value; sizes
//                                                            of 4 bytes, little-endian
//
// The number of bytes has this machine's byte order. Bytes beyond the counted ones belong to an
// incomplete record of a writer that died, and are overwritten. Errors:  WorkerError: Timeout for
// the lock; Store for a file that is not of this kind, is damaged
//          or full; System.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "rendezvous/base/unique_fd.h"

namespace drun::worker {

class FileLog {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  using OnRecord = std::function<void(std::string key, std::string value)>;

  // Creates an empty file if there is none.
  explicit FileLog(std::string path);

  // Locks the file against all other processes and threads until release(). Passes new records to
  // `on_record`, in order.
  void acquire(Deadline deadline, const OnRecord& on_record);
  void release() noexcept;

  // Call the next two between acquire and release.
  void append(const std::string& key, const std::string& value);
  void remove_file() noexcept;

 private:
  void open_file();
  bool try_lock();
  bool is_still_there() const;
  void read_new(const OnRecord& on_record);
  std::uint64_t read_size();
  void read_at(std::uint64_t at, void* data, std::size_t size_bytes);
  void write_at(std::uint64_t at, const void* data, std::size_t size_bytes);
  [[noreturn]] void fail_damaged() const;

  std::string path_;
  UniqueFd fd_;
  std::uint64_t end_ = 0;  // end of the records that have been read
};

}  // namespace drun::worker

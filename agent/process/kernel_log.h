// edge. Reads the records that the kernel has logged since a moment, from /dev/kmsg (Linux's
// Documentation/ABI/testing/dev-kmsg).
//
// Never blocks. Where the log is not readable (kernel.dmesg_restrict, most containers), there are
// no records.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "rendezvous/base/unique_fd.h"

namespace drun::agent {

class KernelLog {
 public:
  explicit KernelLog(const std::string& path = "/dev/kmsg");

  // Only records after this call are read.
  void skip();

  // Calls `visit` with the text of each new record, without its prefix. Records that programs have
  // written to the log are left out. Stops after kMostRecords; the next call continues.
  void read(const std::function<void(std::string_view)>& visit);

  static constexpr std::size_t kMostRecords = std::size_t{16} << 10;

 private:
  UniqueFd log_;
};

}  // namespace drun::agent

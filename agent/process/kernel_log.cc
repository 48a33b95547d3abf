#include "agent/process/kernel_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>

#include "rendezvous/base/text.h"

namespace drun::agent {
namespace {

// "emergency,sequence,time,flags;text": the first number is the level plus 8 times the facility,
// which is 0 for the kernel. Lines that begin with a blank are key-value pairs of the record.
bool is_of_kernel(std::string_view prefix) {
  constexpr int kFirstOfPrograms = 8;
  int priority = kFirstOfPrograms;
  const auto [end, error] = std::from_chars(prefix.data(), prefix.data() + prefix.size(), priority);
  return error == std::errc() && end != prefix.data() && priority < kFirstOfPrograms;
}

}  // namespace

KernelLog::KernelLog(const std::string& path)
    : log_(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {}

void KernelLog::skip() {
  if (log_.get() >= 0) lseek(log_.get(), 0, SEEK_END);
}

void KernelLog::read(const std::function<void(std::string_view)>& visit) {
  std::array<char, 8192> record;  // the kernel's own limit on one record
  for (std::size_t count = 0; log_.get() >= 0 && count < kMostRecords; ++count) {
    const ssize_t size = ::read(log_.get(), record.data(), record.size());
    // EPIPE: records were overwritten before this read; the next read continues after them.
    if (size < 0 && (errno == EPIPE || errno == EINTR)) continue;
    if (size <= 0) return;
    for (const std::string_view line : split({record.data(), static_cast<std::size_t>(size)}, '\n'))
      if (const std::size_t end = line.find(';'); end != line.npos && is_of_kernel(line))
        visit(line.substr(end + 1));
  }
}

}  // namespace drun::agent

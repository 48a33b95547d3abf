#include "agent/child_descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <memory>
#include <optional>
#include <string_view>

namespace drun::agent {
namespace {

struct DirectoryCloser {
  void operator()(DIR* directory) const { closedir(directory); }
};

// The highest that exec would keep open; absent: nobody can tell.
std::optional<int> highest_inherited() {
  const std::unique_ptr<DIR, DirectoryCloser> directory(opendir("/proc/self/fd"));
  if (!directory) return std::nullopt;
  int highest = STDERR_FILENO;
  while (const dirent* const entry = readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    int fd = -1;
    if (std::from_chars(name.data(), name.data() + name.size(), fd).ec != std::errc()) continue;
    const int flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) highest = std::max(highest, fd);
  }
  return highest;
}

// Closes none: there is no such descriptor.
bool has_close_range() { return close_range(UINT_MAX, UINT_MAX, 0) == 0; }

}  // namespace

ChildDescriptors::ChildDescriptors() {
  const std::optional<int> inherited = highest_inherited();
  if (!inherited || !has_close_range()) return;
  null_ = UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC));
  int highest = *inherited;
  for (UniqueFd& low : low_) {
    low = UniqueFd(fcntl(null_.get(), F_DUPFD_CLOEXEC, 3));
    if (!low) return;
    highest = std::max(highest, low.get());
  }
  first_of_ours_ = static_cast<unsigned>(highest) + 1;
}

bool ChildDescriptors::lay_out(const std::array<int, 3>& fds) const {
  for (std::size_t i = 0; i < fds.size(); ++i)
    if (dup3(fds[i], low_[i].get(), O_CLOEXEC) < 0) return false;
  return true;
}

void ChildDescriptors::clear() const {
  if (is_usable()) lay_out({null_.get(), null_.get(), null_.get()});
}

bool leave_descriptors(unsigned first_of_ours) {
  return close_range(first_of_ours, UINT_MAX, CLOSE_RANGE_UNSHARE) == 0;
}

}  // namespace drun::agent

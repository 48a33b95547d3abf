#include "agent/child_descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
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

// Those above 2 that exec would keep open, in order; absent: nobody can tell.
std::optional<std::vector<unsigned>> inherited() {
  const std::unique_ptr<DIR, DirectoryCloser> directory(opendir("/proc/self/fd"));
  if (!directory) return std::nullopt;
  std::vector<unsigned> found;
  while (const dirent* const entry = readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    int fd = -1;
    if (std::from_chars(name.data(), name.data() + name.size(), fd).ec != std::errc()) continue;
    const int flags = fcntl(fd, F_GETFD);
    if (fd > STDERR_FILENO && flags >= 0 && (flags & FD_CLOEXEC) == 0)
      found.push_back(static_cast<unsigned>(fd));
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Closes none: there is no such descriptor.
bool has_close_range() { return close_range(UINT_MAX, UINT_MAX, 0) == 0; }

}  // namespace

ChildDescriptors::ChildDescriptors() {
  const std::optional<std::vector<unsigned>> kept = inherited();
  if (!kept || !has_close_range()) return;
  null_ = UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC));
  unsigned next = 0;  // above the low ones
  for (UniqueFd& low : low_) {
    low = UniqueFd(fcntl(null_.get(), F_DUPFD_CLOEXEC, 3));
    if (!low) return;
    next = static_cast<unsigned>(low.get()) + 1;
  }
  for (const unsigned fd : *kept) {
    if (fd > next) ours_.push_back({next, fd - 1});
    next = std::max(next, fd + 1);
  }
  ours_.push_back({next, UINT_MAX});
  std::reverse(ours_.begin(), ours_.end());
}

bool ChildDescriptors::lay_out(const std::array<int, 3>& fds) const {
  for (std::size_t i = 0; i < fds.size(); ++i)
    if (dup3(fds[i], low_[i].get(), O_CLOEXEC) < 0) return false;
  return true;
}

void ChildDescriptors::clear() const {
  if (is_usable()) lay_out({null_.get(), null_.get(), null_.get()});
}

bool leave_descriptors(std::span<const ChildDescriptors::Range> ours) {
  // Nothing of the first range is even copied, where the kernel can do that.
  if (close_range(ours.front().first, ours.front().last, CLOSE_RANGE_UNSHARE) == 0)
    ours = ours.subspan(1);
  else if (unshare(CLONE_FILES) != 0)
    return false;
  return std::all_of(ours.begin(), ours.end(), [](const ChildDescriptors::Range& range) {
    return close_range(range.first, range.last, 0) == 0;
  });
}

}  // namespace drun::agent

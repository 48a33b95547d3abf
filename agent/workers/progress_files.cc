#include "agent/workers/progress_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <system_error>
#include <utility>

#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"

namespace drun::agent {
namespace {

constexpr std::size_t kTailBytes = 4096;
constexpr int kMostDepth = 3;
constexpr std::chrono::minutes kTrimInterval{1};

// The first integer in `line`; the largest value if it has too many digits.
std::optional<std::uint64_t> first_number_in(std::string_view line) {
  const std::size_t begin = line.find_first_of("0123456789");
  if (begin == line.npos) return std::nullopt;
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  return leading_number<std::uint64_t>(line.substr(begin)).value_or(kMost);
}

// Opens only a regular file, because a worker can put anything there. Never blocks.
UniqueFd open_regular(const std::string& path, int flags) {
  UniqueFd fd(::open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat about {};
  if (!fd || ::fstat(fd.get(), &about) != 0 || !S_ISREG(about.st_mode)) return {};
  return fd;
}

WorkProgress progress_of_file(const std::string& path) {
  const UniqueFd fd = open_regular(path, O_RDONLY);
  if (!fd) return {};
  struct stat about {};
  if (::fstat(fd.get(), &about) != 0) return {};
  const auto size = static_cast<std::size_t>(std::max<off_t>(about.st_size, 0));
  const std::size_t from = size > kTailBytes ? size - kTailBytes : 0;
  std::string tail(kTailBytes, '\0');
  const ssize_t got = ::pread(fd.get(), tail.data(), tail.size(), static_cast<off_t>(from));
  if (got <= 0) return {};
  tail.resize(static_cast<std::size_t>(got));
  return progress_in(tail, from > 0);
}

std::int64_t changed_ns(const std::string& path) {
  struct stat about {};
  if (::lstat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) return 0;
  return std::int64_t{about.st_mtim.tv_sec} * 1'000'000'000 + about.st_mtim.tv_nsec;
}

}  // namespace

WorkProgress progress_in(std::string_view lines, bool is_cut) {
  WorkProgress progress;
  if (is_cut) lines.remove_prefix(std::min(lines.find('\n'), lines.size()));
  for (const std::string_view line : split(lines, '\n')) {
    if (trimmed(line).empty()) continue;
    const auto step = first_number_in(line);
    if (!step) progress.has_more = true;
    if (step && (!progress.step || *step > *progress.step)) progress.step = step;
  }
  return progress;
}

WorkProgress together(const WorkProgress& one, const WorkProgress& other) {
  return {.step = std::max(one.step, other.step), .has_more = one.has_more || other.has_more};
}

LastChange last_change(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code ec;
  LastChange last;
  fs::recursive_directory_iterator at(directory, fs::directory_options::skip_permission_denied, ec);
  for (int count = 0; !ec && at != fs::recursive_directory_iterator() && count < kMostScanned;
       at.increment(ec), ++count) {
    if (at.depth() >= kMostDepth) at.disable_recursion_pending();
    const std::int64_t time_ns = changed_ns(at->path().string());
    if (time_ns > last.time_ns) last = {.time_ns = time_ns, .files = 0};
    if (time_ns > 0 && time_ns == last.time_ns) ++last.files;
  }
  return last;
}

ProgressFiles::ProgressFiles(asio::io_context& io, Log log, std::optional<std::string> checkpoints)
    : io_(io), log_(log), trim_(io), limit_(io), thread_(io, log, {}) {
  if (!checkpoints) return;
  checkpoints_ = std::make_shared<Checkpoints>();
  checkpoints_->directory = *std::move(checkpoints);
}

std::string ProgressFiles::file(std::size_t local_rank) const {
  if (!directory_.is_made()) return "";
  return directory_.path() + "/" + std::to_string(round_) + "." + std::to_string(local_rank);
}

void ProgressFiles::begin_round(int round, int workers) {
  directory_.clear();
  seen_ = {};
  round_ = round;
  workers_ = workers;
  // If it fails, the job runs without progress files.
  if (!has_failed_) has_failed_ = !directory_.make();
  if (!has_failed_) trim_later();
  if (!checkpoints_ || std::exchange(has_begun_, true)) return;
  thread_.run(
      [checkpoints = checkpoints_] { checkpoints->last = last_change(checkpoints->directory); });
}

void ProgressFiles::read_files() {
  if (!directory_.is_made()) return;
  for (int i = 0; i < workers_; ++i)
    seen_ = together(seen_, progress_of_file(file(static_cast<std::size_t>(i))));
}

std::optional<std::uint64_t> ProgressFiles::step(std::size_t local_rank) const {
  if (!directory_.is_made()) return std::nullopt;
  return progress_of_file(file(local_rank)).step;
}

void ProgressFiles::trim_later() {
  trim_.expires_after(kTrimInterval);
  trim_.async_wait([this](const error_code& ec) {
    if (ec) return;
    trim();
    trim_later();
  });
}

// Programs append a line per step, for days, so large files are truncated.
void ProgressFiles::trim() {
  for (int i = 0; i < workers_; ++i) {
    const std::string path = file(static_cast<std::size_t>(i));
    struct stat about {};
    if (::lstat(path.c_str(), &about) != 0) continue;
    if (about.st_size < static_cast<off_t>(kMostProgressBytes)) continue;
    seen_ = together(seen_, progress_of_file(path));
    const UniqueFd fd = open_regular(path, O_WRONLY);
    if (fd && ::ftruncate(fd.get(), 0) != 0) continue;
  }
}

void ProgressFiles::collect(OnCollected on_collected) {
  trim_.cancel();
  read_files();
  if (!checkpoints_) return on_collected(seen_);
  on_collected_ = std::move(on_collected);
  const auto is_newer = std::make_shared<bool>(false);
  const int scan = ++scan_;
  thread_.run(
      [checkpoints = checkpoints_, is_newer] {
        const LastChange last = last_change(checkpoints->directory);
        *is_newer = last > checkpoints->last;
        checkpoints->last = std::max(checkpoints->last, last);
      },
      [this, scan, is_newer](bool has_run) {
        if (scan == scan_) give(together(seen_, {.has_more = has_run && *is_newer}));
      });
  limit_.expires_after(kScanAtMost);
  limit_.async_wait([this](const error_code& ec) {
    if (ec || !on_collected_) return;
    log_.warning("cannot read --checkpoint-dir " + checkpoints_->directory + ": no answer within " +
                 std::to_string(kScanAtMost.count()) +
                 " s; checkpoints do not count as progress of this round");
    give(seen_);
  });
}

void ProgressFiles::give(const WorkProgress& progress) {
  limit_.cancel();
  if (const OnCollected given = std::exchange(on_collected_, nullptr)) given(progress);
}

void ProgressFiles::stop() {
  trim_.cancel();
  thread_.abandon();
  give(seen_);
}

}  // namespace drun::agent

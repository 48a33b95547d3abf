#include "agent/output/log_files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "agent/process/scratch.h"

namespace drun::agent {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestNameBytes = 64;
constexpr std::string_view kErrorFiles = "errors";  // the scratch directory

std::string_view name_of(LogFiles::Stream stream) {
  return stream == LogFiles::Stream::Stdout ? "stdout.log" : "stderr.log";
}

Error unusable(const std::string& path, const std::error_code& ec) {
  return Error{ErrorCode::Usage, "cannot use log directory " + path + ": " +
                                     system_message(ec.value()) +
                                     "; choose another with --log-dir"};
}

Result<void> make_directory(const std::string& path, bool may_exist = false) {
  if (::mkdir(path.c_str(), 0700) == 0 || (may_exist && errno == EEXIST)) return {};
  return system_error("make directory " + path, errno);
}

}  // namespace

std::string as_file_name(std::string_view run_id) {
  std::string name(run_id.substr(0, kLongestNameBytes));
  const auto is_safe = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  std::replace_if(
      name.begin(), name.end(), [&](char c) { return !is_safe(c); }, '_');
  if (name.empty()) return "none";
  if (name.front() == '.') name.front() = '_';
  return name;
}

Result<void> LogFiles::make(const std::optional<std::string>& log_dir, std::string_view run_id,
                            bool holds_streams) {
  if (log_dir && log_dir->empty()) return {};
  is_temporary_ = !log_dir;
  is_flat_ = is_temporary_ && !holds_streams;
  const std::string prefix = (is_temporary_ ? "drun_" : "") + as_file_name(run_id) + "_";
  std::error_code ec;
  if (is_temporary_) {
    const Result<std::string> base = temporary_directory();
    if (!base) return Error{base.error().code, base.error().message + "; set TMPDIR or --log-dir"};
    if (holds_streams) {
      const Result<void> made = make_random(*base, prefix);
      return made ? made : Error{ErrorCode::System, made.error().message};  // no option is wrong
    }
    // A TMPDIR that the user has chosen is used.
    const bool is_chosen = *base != "/tmp" && scratch_parent().empty();
    Result<std::string> made = is_chosen ? make_scratch_directory_in(*base, kErrorFiles)
                                         : make_scratch_directory(kErrorFiles);
    if (!made) return Error{ErrorCode::System, made.error().message + "; set TMPDIR or --log-dir"};
    place_ = *std::move(made);
    is_in_memory_ = is_in_memory_directory(place_);
    return {};
  }
  fs::create_directories(*log_dir, ec);
  if (!ec && !fs::is_directory(*log_dir, ec) && !ec)
    ec = std::make_error_code(std::errc::not_a_directory);
  if (ec) return unusable(*log_dir, ec);
  return make_random(*log_dir, prefix);
}

Result<void> LogFiles::make_random(const std::string& base, const std::string& prefix) {
  std::error_code ec;
  std::string path = (fs::absolute(base, ec) / (prefix + "XXXXXX")).string();
  if (::mkdtemp(path.data()) == nullptr)
    return unusable(base, std::error_code(errno, std::generic_category()));
  place_ = path;
  return {};
}

Result<void> LogFiles::make_attempt(int round) {
  if (!has_place()) return {};
  const std::string attempt = attempt_path(round);
  std::error_code ec;
  fs::remove_all(attempt, ec);
  if (ec) return system_error("wipe " + attempt, ec.value());
  if (Result<void> kept = keep_place(); !kept) return kept;
  round_ = round;
  return make_directory(attempt);
}

// A long job must not end at a restart because the directory has been removed.
Result<void> LogFiles::keep_place() const {
  if (is_flat_) {
    if (keep_scratch_directory(place_)) return {};
    return system_error("make directory " + place_, errno);
  }
  std::error_code ec;
  // If it cannot be looked at, making the attempt directory reports why.
  if (fs::exists(place_, ec) || ec) return {};
  fs::create_directories(fs::path(place_).parent_path(), ec);
  return make_directory(place_);
}

Result<void> LogFiles::reach_attempt(int round) {
  const bool is_kept = round_ && round <= *round_;
  return is_kept ? make_directory(attempt_path(round), true) : make_attempt(round);
}

Result<void> LogFiles::make_worker_directory(int round, int worker) {
  if (!has_place() || is_flat_) return {};
  return make_directory(worker_path(round, worker, ""), true);
}

std::string LogFiles::attempt_path(int round) const {
  return place_ + "/attempt_" + std::to_string(round);
}

std::string LogFiles::worker_path(int round, int worker, std::string_view name) const {
  if (!has_place()) return {};
  const std::string directory = attempt_path(round) + "/" + std::to_string(worker);
  return name.empty() ? directory : directory + "/" + std::string(name);
}

std::string LogFiles::stream_path(int round, int worker, Stream stream) const {
  return worker_path(round, worker, name_of(stream));
}

std::string LogFiles::filtered_path(int round, Stream stream) const {
  return has_place() ? attempt_path(round) + "/filtered_" + std::string(name_of(stream)) : "";
}

std::string LogFiles::error_path(int round, int worker) const {
  if (!is_flat_) return worker_path(round, worker, "error.json");
  return attempt_path(round) + "/error_" + std::to_string(worker) + ".json";
}

void LogFiles::remove() {
  if (!has_place()) return;
  std::error_code ignored;
  fs::remove_all(place_, ignored);
  place_.clear();
}

Result<UniqueFd> create_log(const std::string& path) {
  UniqueFd fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return system_error("create " + path, errno);
  return fd;
}

namespace {

struct LogToRead {
  UniqueFd fd;
  std::uint64_t size_bytes = 0;
};

// Without a descriptor if it is no regular file that can be read.
LogToRead open_log(const std::string& path) {
  LogToRead file{.fd =
                     UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK))};
  struct stat about {};
  if (!file.fd || ::fstat(file.fd.get(), &about) != 0 || !S_ISREG(about.st_mode)) return {};
  file.size_bytes = static_cast<std::uint64_t>(about.st_size);
  return file;
}

std::string read_log(int fd, std::uint64_t offset, std::uint64_t bytes) {
  std::string text(static_cast<std::size_t>(bytes), '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t got =
        ::pread(fd, text.data() + have, text.size() - have, static_cast<off_t>(offset + have));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    have += static_cast<std::size_t>(got);
  }
  text.resize(have);
  return text;
}

}  // namespace

std::string read_end_of(const std::string& path, std::size_t at_most_bytes) {
  const LogToRead file = open_log(path);
  if (!file.fd) return {};
  const std::uint64_t bytes = std::min<std::uint64_t>(at_most_bytes, file.size_bytes);
  return read_log(file.fd.get(), file.size_bytes - bytes, bytes);
}

FilePart read_part_of(const std::string& path, std::uint64_t offset, std::size_t at_most_bytes) {
  const LogToRead file = open_log(path);
  if (!file.fd) return {};
  FilePart part{.is_read = true, .size_bytes = file.size_bytes};
  if (offset < file.size_bytes)
    part.text = read_log(file.fd.get(), offset,
                         std::min<std::uint64_t>(at_most_bytes, file.size_bytes - offset));
  return part;
}

int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return EIO;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace drun::agent

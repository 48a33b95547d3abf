#include "agent/error_file_io.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "agent/output/log_files.h"
#include "rendezvous/unique_fd.h"

namespace drun::agent {
namespace {

Result<std::string> read_all(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd && errno == ENOENT) return std::string();
  struct stat about {};
  if (!fd || ::fstat(fd.get(), &about) != 0) return system_error("read " + path, errno);
  // A worker may have put anything there: a FIFO or /dev/zero is not to be waited for.
  if (!S_ISREG(about.st_mode))
    return Error{ErrorCode::Usage, "error file ignored: " + path + " is no regular file"};
  if (about.st_size > static_cast<off_t>(kLongestErrorFileBytes))
    return Error{ErrorCode::Usage, "error file ignored: " + path + " is larger than 1 MiB"};
  return read_end_of(path, kLongestErrorFileBytes);
}

Result<void> write_file(const std::string& path, const std::string& text) {
  const int links = path.starts_with("/dev/") ? 0 : O_NOFOLLOW;  // /dev/stderr
  const UniqueFd fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY | links, 0600));
  const int error_number = fd ? write_all(fd.get(), text) : errno;
  if (error_number != 0) return system_error("write " + path, error_number);
  return {};
}

}  // namespace

Result<std::optional<ErrorRecord>> read_error_file(const std::string& path) {
  if (path.empty()) return std::optional<ErrorRecord>();
  const Result<std::string> text = read_all(path);
  if (!text) return text.error();
  if (text->empty()) return std::optional<ErrorRecord>();
  Result<ErrorRecord> record = parse_error_record(*text);
  if (!record) return with_context(record.error(), path);
  return std::optional<ErrorRecord>(std::move(*record));
}

Result<void> pass_on_error_file(const std::string& workers, const std::string& own, int exit_code) {
  if (own.empty() || workers.empty()) return {};
  const Result<std::string> text = read_all(workers);
  if (!text) return text.error();
  if (text->empty()) return {};
  const Result<std::string> with_code = with_error_code(*text, exit_code);
  if (!with_code) return with_context(with_code.error(), workers);
  return write_file(own, *with_code);
}

Result<void> write_error_file(const std::string& own, const ErrorRecord& record) {
  if (own.empty()) return {};
  return write_file(own, format_error_record(record));
}

}  // namespace drun::agent

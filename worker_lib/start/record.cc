#include "drun/record.h"

#include <cxxabi.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <typeinfo>

#include "rendezvous/base/result.h"

namespace drun {
namespace {

std::string type_name(const std::exception& error) {
  const char* mangled = typeid(error).name();
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), &std::free);
  const std::string whole = name ? name.get() : mangled;
  const std::string nested = "std::_Nested_exception<";  // how libstdc++ wraps throw_with_nested's
  if (whole.rfind(nested, 0) != 0) return whole;
  return whole.substr(nested.size(), whole.size() - nested.size() - 1);
}

struct Story {
  std::string message;    // "drun::WorkerError: rank 3: ..."
  std::string callstack;  // one line for each exception, the outermost first
};

void tell(const std::exception& error, Story& story) {
  const std::string line = type_name(error) + ": " + error.what();
  if (story.message.empty()) story.message = line;
  story.callstack += (story.callstack.empty() ? "" : "\ncaused by ") + line;
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& cause) {
    tell(cause, story);
  } catch (...) {
    story.callstack += "\ncaused by something that is not a std::exception";
  }
}

Story current_exception_told() {
  Story story;
  try {
    throw;
  } catch (const std::exception& error) {
    tell(error, story);
  } catch (...) {
    story.message = "an exception that is not a std::exception";
    story.callstack = story.message;
  }
  return story;
}

std::string to_json(const Story& story) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  const nlohmann::json json = {
      {"message",
       {{"message", story.message},
        {"extraInfo",
         {{"py_callstack", story.callstack}, {"timestamp", std::to_string(seconds)}}}}}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The launcher reads this file after this process has ended, so it must be complete or missing.
void write_error_file(const Story& story) {
  const char* name = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (name == nullptr || *name == '\0') return;
  const std::string path = name;
  const std::string partial = path + "." + std::to_string(getpid());
  const std::string text = to_json(story) + "\n";
  // Only for this user; symbolic links are not followed.
  const int fd =
      ::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  std::FILE* file = fd >= 0 ? ::fdopen(fd, "w") : nullptr;
  bool is_written =
      file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr && std::fclose(file) != 0) is_written = false;
  if (is_written && std::rename(partial.c_str(), path.c_str()) == 0) return;
  std::fprintf(stderr, "cannot write the error file TORCHELASTIC_ERROR_FILE=%s: %s\n", path.c_str(),
               system_message(errno).c_str());
  if (fd >= 0) std::remove(partial.c_str());
}

// Stays open until the process ends; -1: none.
int progress_fd() noexcept {
  static const int fd = [] {
    const char* path = std::getenv("DRUN_PROGRESS_FILE");
    if (path == nullptr || *path == '\0') return -1;
    return ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
  }();
  return fd;
}

}  // namespace

void show_progress(std::uint64_t step) noexcept {
  const int fd = progress_fd();
  if (fd < 0) return;
  std::array<char, 24> line{};
  const int size = std::snprintf(line.data(), line.size(), "%" PRIu64 "\n", step);
  if (::write(fd, line.data(), static_cast<std::size_t>(size)) < 0) return;  // it is not needed
}

int record_exit_code(const std::function<int()>& body) noexcept {
  try {
    return body();
  } catch (...) {
    const Story story = current_exception_told();
    std::fflush(stdout);
    std::fprintf(stderr, "%s\n", story.callstack.c_str());
    write_error_file(story);
    return 1;
  }
}

}  // namespace drun

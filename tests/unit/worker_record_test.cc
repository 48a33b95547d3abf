#include "drun/record.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "drun/error.h"
#include "tests/support/catch.h"

namespace drun {
namespace {

// Sets TORCHELASTIC_ERROR_FILE for its lifetime and removes the file afterwards.
class ErrorFile {
 public:
  explicit ErrorFile(std::string path) : path_(std::move(path)) {
    setenv("TORCHELASTIC_ERROR_FILE", path_.c_str(), 1);
  }
  ErrorFile()
      : ErrorFile(std::filesystem::temp_directory_path() /
                  ("drun_record_test_" + std::to_string(getpid()))) {}
  ~ErrorFile() {
    unsetenv("TORCHELASTIC_ERROR_FILE");
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

  bool exists() const { return std::filesystem::exists(path_); }
  bool is_private() const {
    using std::filesystem::perms;
    const perms others = perms::group_all | perms::others_all;
    return (std::filesystem::status(path_).permissions() & others) == perms::none;
  }
  nlohmann::json read() const { return nlohmann::json::parse(std::ifstream(path_)); }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("a body that returns leaves no error file") {
  const ErrorFile file;
  CHECK(record([] {}) == 0);
  CHECK(record([] { return 7; }) == 7);
  CHECK_FALSE(file.exists());
}

TEST_CASE("a body that throws returns 1 and writes an error file in torchrun's format") {
  const ErrorFile file;
  const auto before = std::chrono::system_clock::now().time_since_epoch();
  CHECK(record([] { throw std::runtime_error("no \xff more"); }) == 1);
  CHECK(file.is_private());
  const nlohmann::json json = file.read();
  CHECK(json["message"]["message"] == "std::runtime_error: no \xef\xbf\xbd more");
  const nlohmann::json& extra = json["message"]["extraInfo"];
  CHECK(extra["py_callstack"].is_string());
  const std::string timestamp = extra["timestamp"].get<std::string>();
  CHECK(std::stoll(timestamp) >= std::chrono::duration_cast<std::chrono::seconds>(before).count());
}

TEST_CASE("nested exceptions are listed from the outermost to the cause") {
  const ErrorFile file;
  const auto body = [] {
    try {
      throw WorkerError({.kind = WorkerError::Kind::Timeout, .rank = 1, .message = "inner"});
    } catch (const WorkerError&) {
      std::throw_with_nested(std::logic_error("outer"));
    }
  };
  CHECK(record(body) == 1);
  const nlohmann::json json = file.read();
  CHECK(json["message"]["message"] == "std::logic_error: outer");
  CHECK_THAT(json["message"]["extraInfo"]["py_callstack"].get<std::string>(),
             ContainsSubstring("caused by drun::WorkerError: rank 1: inner"));
}

TEST_CASE("an exception not derived from std::exception is recorded too") {
  const ErrorFile file;
  CHECK(record([] { throw 42; }) == 1);
  CHECK_THAT(file.read()["message"]["message"].get<std::string>(),
             ContainsSubstring("not a std::exception"));
}

TEST_CASE("a missing directory for the error file does not hide the error") {
  const ErrorFile file("/nonexistent/error.json");
  CHECK(record([] { throw std::runtime_error("seen"); }) == 1);
  CHECK_FALSE(file.exists());
}

TEST_CASE("steps are appended to the progress file") {
  const auto path =
      std::filesystem::temp_directory_path() / ("drun_progress_test_" + std::to_string(getpid()));
  setenv("DRUN_PROGRESS_FILE", path.c_str(), 1);
  show_progress(7);
  show_progress(~std::uint64_t{0});
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::filesystem::remove(path);
  unsetenv("DRUN_PROGRESS_FILE");
  CHECK(text == "7\n18446744073709551615\n");
}

}  // namespace drun

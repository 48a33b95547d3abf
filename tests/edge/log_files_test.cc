#include "agent/output/log_files.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "agent/diagnosis/error_file.h"
#include "tests/support/catch.h"
#include "tests/support/output_rig.h"
#include "tests/support/process.h"

namespace drun::agent {
namespace {

namespace fs = std::filesystem;

void write_file(const std::string& path, std::string_view text) { std::ofstream(path) << text; }

}  // namespace

TEST_CASE("any run id becomes a valid file name") {
  CHECK(as_file_name("job-1_a.b") == "job-1_a.b");
  CHECK(as_file_name("a/b\n c") == "a_b__c");
  CHECK(as_file_name("../..") == "_._..");
  CHECK(as_file_name("") == "none");
  CHECK(as_file_name(std::string(300, 'x')).size() == 64);
}

TEST_CASE("the log directory has torchrun's layout") {
  const test::TemporaryDirectory directory;
  LogFiles files;
  REQUIRE(files.make(directory / "deep/er", "job", true));
  CHECK(fs::path(files.place()).parent_path() == directory / "deep/er");
  CHECK(fs::path(files.place()).filename().string().starts_with("job_"));
  CHECK(fs::status(files.place()).permissions() == fs::perms::owner_all);
  CHECK_FALSE(files.is_temporary());
  REQUIRE(files.make_attempt(2));
  REQUIRE(files.make_worker_directory(2, 13));
  CHECK(fs::is_directory(files.place() + "/attempt_2/13"));
  CHECK(fs::status(files.place() + "/attempt_2/13").permissions() == fs::perms::owner_all);
  const std::string log = files.stream_path(2, 13, LogFiles::Stream::Stdout);
  REQUIRE(create_log(log));
  CHECK(fs::status(log).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  fs::remove(log);
  fs::create_symlink("elsewhere", log);
  CHECK_FALSE(create_log(log));
  fs::remove(log);
  CHECK(files.stream_path(2, 13, LogFiles::Stream::Stderr) ==
        files.place() + "/attempt_2/13/stderr.log");
  CHECK(files.stream_path(2, 13, LogFiles::Stream::Stdout) ==
        files.place() + "/attempt_2/13/stdout.log");
  CHECK(files.error_path(2, 13) == files.place() + "/attempt_2/13/error.json");
  CHECK(files.filtered_path(2, LogFiles::Stream::Stdout) ==
        files.place() + "/attempt_2/filtered_stdout.log");
}

TEST_CASE("an existing attempt directory is emptied") {
  const test::TemporaryDirectory directory;
  LogFiles files;
  REQUIRE(files.make(directory.path(), "job", true));
  REQUIRE(files.make_attempt(0));
  REQUIRE(files.make_worker_directory(0, 0));
  write_file(files.error_path(0, 0), "old");
  REQUIRE(files.make_attempt(0));
  REQUIRE(files.make_worker_directory(0, 0));
  CHECK_FALSE(fs::exists(files.error_path(0, 0)));
}

TEST_CASE("a file that is opened late keeps the files of its round and of the next one") {
  const test::TemporaryDirectory directory;
  LogFiles files;
  REQUIRE(files.make(directory.path(), "job", true));
  for (const int round : {1, 2}) {
    REQUIRE(files.reach_attempt(round));
    REQUIRE(files.make_worker_directory(round, 0));
    write_file(files.error_path(round, 0), "kept");
  }
  for (const int round : {0, 1, 2}) {
    REQUIRE(files.reach_attempt(round));
    REQUIRE(files.make_worker_directory(round, 1));
  }
  CHECK(fs::exists(files.error_path(1, 0)));
  CHECK(fs::exists(files.error_path(2, 0)));
}

TEST_CASE("a file at the path of the log directory is a usage error that names it") {
  const test::TemporaryDirectory directory;
  write_file(directory / "file", "");
  const std::string path = directory / GENERATE("file", "file/below");
  LogFiles files;
  const Result<void> made = files.make(path, "job", true);
  REQUIRE_FALSE(made);
  CHECK(made.error().code == ErrorCode::Usage);
  CHECK_THAT(made.error().message, ContainsSubstring(path + ": not a directory"));
}

TEST_CASE("with an empty log directory no files are written") {
  LogFiles files;
  REQUIRE(files.make("", "job", true));
  REQUIRE(files.make_attempt(0));
  REQUIRE(files.make_worker_directory(0, 0));
  CHECK_FALSE(files.has_place());
  CHECK(files.error_path(0, 0).empty());
}

TEST_CASE("without a log directory a temporary one is used, and can be removed") {
  const bool holds_streams = GENERATE(false, true);
  LogFiles files;
  REQUIRE(files.make(std::nullopt, "job", holds_streams));
  if (holds_streams) CHECK(fs::path(files.place()).parent_path() == fs::temp_directory_path());
  CHECK(files.is_temporary());
  CHECK(fs::path(files.place())
            .filename()
            .string()
            .starts_with(holds_streams ? "drun_job_" : "drun_scratch.errors."));
  REQUIRE(files.make_attempt(0));
  REQUIRE(files.make_worker_directory(0, 3));
  const std::string place = files.place();
  CHECK(fs::is_directory(place + "/attempt_0/3") == holds_streams);
  const std::string error = files.error_path(0, 3);
  CHECK(error == place + (holds_streams ? "/attempt_0/3/error.json" : "/attempt_0/error_3.json"));
  write_file(error, "x");
  CHECK(fs::exists(error));
  files.remove();
  CHECK_FALSE(fs::exists(place));
  CHECK_FALSE(files.has_place());
}

TEST_CASE("a worker's error file is read, absent, or rejected with its path") {
  const test::TemporaryDirectory directory;
  const std::string path = directory / "error.json";
  REQUIRE(read_error_file(path));
  CHECK_FALSE(*read_error_file(path));
  CHECK_FALSE(*read_error_file(""));
  write_file(path, "");
  CHECK_FALSE(*read_error_file(path));
  write_file(path, R"({"message":"m"})");
  CHECK((*read_error_file(path))->message == "m");
  write_file(path, "Traceback");
  CHECK_THAT(read_error_file(path).error().message, ContainsSubstring(path));
  write_file(path, std::string(kLongestErrorFileBytes + 1, ' '));
  CHECK_THAT(read_error_file(path).error().message, ContainsSubstring("larger than 1 MiB"));
}

TEST_CASE("an error file that is not a regular file is rejected without blocking") {
  const test::TemporaryDirectory directory;
  const std::string fifo = directory / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_THAT(read_error_file(fifo).error().message, ContainsSubstring("no regular file"));
  CHECK_THAT(read_error_file("/dev/zero").error().message, ContainsSubstring("no regular file"));
}

TEST_CASE("the root cause's error file becomes drun's own, with its exit code") {
  const test::TemporaryDirectory directory;
  const std::string own = directory / "own.json";
  REQUIRE(pass_on_error_file(directory / "none", own, 42));
  CHECK_FALSE(fs::exists(own));
  write_file(directory / "error.json", R"({"message":{"message":"m","extraInfo":{}}})");
  REQUIRE(pass_on_error_file(directory / "error.json", "", 42));
  REQUIRE(pass_on_error_file(directory / "error.json", own, 42));
  CHECK(testing::read_file(own) == R"({"message":{"errorCode":42,"extraInfo":{},"message":"m"}})");
  CHECK_FALSE(pass_on_error_file(directory / "error.json", directory / "no/where", 42));
  REQUIRE(write_error_file(own, {.message = "cannot bind", .traceback = {}, .time = {}}));
  CHECK((*read_error_file(own))->message == "cannot bind");
}

}  // namespace drun::agent

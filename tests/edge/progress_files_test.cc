// Tests how workers report their progress, and checkpoints as progress.
#include "agent/workers/progress_files.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/event_loop.h"
#include "tests/support/process.h"

namespace drun::agent {
namespace {

WorkProgress collected(asio::io_context& io, ProgressFiles& files) {
  std::optional<WorkProgress> progress;
  files.collect([&progress](const WorkProgress& found) { progress = found; });
  REQUIRE(test::run_until(io, [&] { return progress.has_value(); }));
  return *progress;
}

void append(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::app) << text;
}

}  // namespace

TEST_CASE("progress is the highest step of all workers, and any other line") {
  asio::io_context io;
  ProgressFiles files(io, Log(), std::nullopt);
  files.begin_round(0, 3);
  CHECK(collected(io, files) == WorkProgress{});
  append(files.file(0), "step 11\nstep 12\n");
  append(files.file(2), "9\n");
  CHECK(collected(io, files) == WorkProgress{.step = 12});
  append(files.file(1), "epoch done\n");
  CHECK(collected(io, files) == WorkProgress{.step = 12, .has_more = true});
  files.begin_round(1, 3);
  CHECK(collected(io, files) == WorkProgress{});
}

TEST_CASE("only the end of a long progress file is read, and only if it is a regular file") {
  asio::io_context io;
  ProgressFiles files(io, Log(), std::nullopt);
  files.begin_round(0, 3);
  append(files.file(0), "999999\n" + std::string(100000, '\n') + "41\n42\n");
  std::filesystem::create_symlink(files.file(0), files.file(1));
  REQUIRE(mkfifo(files.file(2).c_str(), 0600) == 0);
  CHECK(collected(io, files) == WorkProgress{.step = 42});
}

TEST_CASE("progress files are removed with their directory") {
  std::string directory;
  {
    asio::io_context io;
    ProgressFiles files(io, Log(), std::nullopt);
    files.begin_round(0, 1);
    append(files.file(0), "1\n");
    directory = std::filesystem::path(files.file(0)).parent_path();
    CHECK(std::filesystem::exists(directory));
  }
  CHECK_FALSE(std::filesystem::exists(directory));
}

TEST_CASE("a checkpoint newer than all earlier ones counts as progress once") {
  const testing::TemporaryDirectory place;
  const std::string directory = place.path() + "/checkpoints";
  std::filesystem::create_directories(directory + "/step1");
  append(directory + "/step1/model.pt", "x");
  asio::io_context io;
  ProgressFiles files(io, Log(), directory);
  files.begin_round(0, 1);
  CHECK(collected(io, files) == WorkProgress{});
  files.begin_round(1, 1);
  std::filesystem::create_directories(directory + "/step2");
  append(directory + "/step2/model.pt", "x");
  std::filesystem::last_write_time(
      directory + "/step2/model.pt",
      std::filesystem::file_time_type::clock::now() + std::chrono::seconds(5));
  CHECK(collected(io, files) == WorkProgress{.has_more = true});
  files.begin_round(2, 1);
  CHECK(collected(io, files) == WorkProgress{});
}

TEST_CASE("a further checkpoint with the same time counts as progress") {
  const testing::TemporaryDirectory directory;
  const auto now = std::filesystem::file_time_type::clock::now();
  const auto write = [&](const std::string& name) {
    append(directory.file(name), "x");
    std::filesystem::last_write_time(directory.file(name), now);
  };
  asio::io_context io;
  ProgressFiles files(io, Log(), directory.path());
  write("1");
  files.begin_round(0, 1);
  CHECK(collected(io, files) == WorkProgress{});
  write("2");
  CHECK(collected(io, files) == WorkProgress{.has_more = true});
  write("2");
  CHECK(collected(io, files) == WorkProgress{});
  std::filesystem::remove(directory.file("1"));
  CHECK(collected(io, files) == WorkProgress{});
}

TEST_CASE("a checkpoint directory that does not exist yet shows no progress") {
  asio::io_context io;
  ProgressFiles files(io, Log(), "/nonexistent/checkpoints");
  files.begin_round(0, 1);
  CHECK(collected(io, files) == WorkProgress{});
  files.stop();
  CHECK(collected(io, files) == WorkProgress{});
}

TEST_CASE("the first integer of each line is a step") {
  CHECK(progress_in("epoch=2 step=7\n", false) == WorkProgress{.step = 2});
  CHECK(progress_in("12\n1", false) == WorkProgress{.step = 12});
  CHECK(progress_in("", false) == WorkProgress{});
  CHECK(progress_in("\n \t\n", false) == WorkProgress{});
  CHECK(progress_in("half a line 99\n3\n", true) == WorkProgress{.step = 3});
  CHECK(progress_in("half a line 99", true) == WorkProgress{});
  CHECK(progress_in("99999999999999999999999\n", false).step == ~std::uint64_t{0});
}

}  // namespace drun::agent

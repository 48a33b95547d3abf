#include "agent/process/scratch.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>

#include "rendezvous/base/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/process.h"

namespace drun::agent {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryDirectory;

void put(const std::string& path) { std::ofstream(path) << "x"; }

void make_private(const std::string& path, mode_t mode = 0700) {
  REQUIRE(mkdir(path.c_str(), 0700) == 0);
  REQUIRE(chmod(path.c_str(), mode) == 0);
  put(path + "/file");
}

std::set<std::string> names_in(const std::string& path) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(path)) names.insert(entry.path().filename());
  return names;
}

}  // namespace

TEST_CASE("names of scratch directories are recognized, and no others") {
  CHECK(is_scratch_name("drun_scratch.worker_key.aZ09bc"));
  for (const char* other :
       {"drun_scratch.aZ09bc", "drun_scratch..aZ09bc", "drun_scratch.progress.aZ09b",
        "drun_scratch.progress.aZ09bcd", "drun_scratch.progress.aZ09b_", "drun_job_aZ09bc",
        "xdrun_scratch.progress.aZ09bc", "drun_scratch.progress.more.aZ09bc", ""})
    CHECK_FALSE(is_scratch_name(other));
}

TEST_CASE("abandoned scratch directories are removed, and nothing else is") {
  const TemporaryDirectory base;
  const TemporaryDirectory outside;
  put(outside.file("kept"));
  const std::string abandoned = base.file("drun_scratch.progress.abcdef");
  make_private(abandoned);
  fs::create_directories(abandoned + "/a/b/c");
  put(abandoned + "/a/b/c/file");
  for (int i = 0; i < 300; ++i) put(abandoned + "/a/" + std::to_string(i));
  fs::create_symlink(outside.path(), abandoned + "/link");
  fs::create_symlink(outside.path(), base.file("drun_scratch.progress.linked"));
  make_private(base.file("drun_scratch.progress.shared"), 0755);
  make_private(base.file("drun_scratch.progress"));
  make_private(base.file("drun_job_abcdef"));
  put(base.file("drun_scratch.errors.abcdef"));
  const std::string held = base.file("drun_scratch.errors.heldxx");
  make_private(held);
  UniqueFd owner(open(held.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(flock(owner.get(), LOCK_SH) == 0);

  std::set<std::string> left = names_in(base.path());
  left.erase("drun_scratch.progress.abcdef");
  remove_abandoned_scratch(base.path());
  CHECK(names_in(base.path()) == left);
  CHECK(names_in(outside.path()) == std::set<std::string>{"kept"});
  owner.reset();
  remove_abandoned_scratch(base.path());
  left.erase("drun_scratch.errors.heldxx");
  CHECK(names_in(base.path()) == left);
}

TEST_CASE("a scratch directory belongs to the process that made it") {
  const TemporaryDirectory base;
  const Result<std::string> made = make_scratch_directory_in(base.path(), "progress");
  REQUIRE(made);
  CHECK(fs::status(*made).permissions() == fs::perms::owner_all);
  CHECK(fs::path(*made).parent_path() == base.path());
  remove_abandoned_scratch(base.path());
  CHECK(fs::exists(*made));
}

TEST_CASE("making a scratch directory removes abandoned ones beside it") {
  const TemporaryDirectory base;
  make_private(base.file("drun_scratch.errors.abcdef"));
  const Result<std::string> made = make_scratch_directory_in(base.path(), "errors");
  REQUIRE(made);
  CHECK(names_in(base.path()) == std::set<std::string>{fs::path(*made).filename()});
}

TEST_CASE("a directory that is too deep or a link is not removed with what is outside") {
  const TemporaryDirectory base;
  const TemporaryDirectory outside;
  put(outside.file("kept"));
  std::string deep = base.file("tree");
  fs::create_directories(deep + "/1/2/3/4/5/6/7/8/9/10");
  remove_tree(deep.c_str());
  CHECK(fs::exists(deep + "/1/2/3/4/5/6/7/8"));
  fs::create_symlink(outside.path(), base.file("link"));
  remove_tree(base.file("link").c_str());
  CHECK(fs::exists(outside.file("kept")));
  remove_tree(base.file("absent").c_str());
}

TEST_CASE("a directory in which nothing can be made is an error that names it") {
  const Result<std::string> made = make_scratch_directory_in("/proc", "progress");
  REQUIRE_FALSE(made);
  CHECK_THAT(made.error().message, ContainsSubstring("make a directory in /proc"));
}

}  // namespace drun::agent

#include "agent/process/scratch.h"

#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>

#include "agent/hang/heartbeat_files.h"
#include "rendezvous/base/pulse_page.h"
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

constexpr int kCannotMount = 77;

// In a child that has its own /dev/shm of that size.
int with_memory_directory(const char* size, const std::function<int()>& action) {
  const pid_t child = fork();
  if (child == 0) {
    const bool is_mounted =
        unshare(CLONE_NEWNS) == 0 &&
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
        mount("none", kMemoryDirectory, "tmpfs", 0, ("size=" + std::string(size)).c_str()) == 0;
    _exit(is_mounted ? action() : kCannotMount);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void fill_memory_directory() {
  std::ofstream file(std::string(kMemoryDirectory) + "/fill", std::ios::binary);
  const std::string page(4096, 'x');
  while (file.write(page.data(), 4096).flush()) continue;
}

blkcnt_t blocks_of(const std::string& path) {
  struct stat about {};
  return stat(path.c_str(), &about) == 0 ? about.st_blocks : -1;
}

// 0: they are in memory, then on a disk when there is no room in memory.
int make_heartbeats_before_and_after_it_is_full() {
  HeartbeatFiles heartbeats;
  if (!heartbeats.prepare(0, 2) || !is_in_memory_directory(heartbeats.path(1))) return 1;
  const fs::path before = fs::path(heartbeats.path(1)).parent_path();
  fill_memory_directory();
  // There is room for the two that the first round has left.
  if (!heartbeats.prepare(1, 4)) return 2;
  if (is_in_memory_directory(heartbeats.path(0)) || is_in_memory_directory(heartbeats.path(3)))
    return 3;
  if (blocks_of(heartbeats.path(3)) * 512 < static_cast<blkcnt_t>(kPulseBytes)) return 4;
  return fs::exists(before) ? 5 : 0;
}

}  // namespace

TEST_CASE("a new directory that cannot be entered is removed, and the error names the reason") {
  const TemporaryDirectory base;
  const UniqueFd lowest(dup(STDERR_FILENO));
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(lowest.get());
  REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
  const Result<std::string> made = make_scratch_directory_in(base.path(), "test");
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE_FALSE(made);
  CHECK(made.error().message == "cannot enter a new directory in " + base.path() +
                                    ": too many open files; raise the limit (ulimit -n)");
  CHECK(names_in(base.path()).empty());
}

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

TEST_CASE("a scratch directory that has been removed is made again") {
  const TemporaryDirectory base;
  const std::string parent = *make_scratch_directory_in(base.path(), "nodes");
  set_scratch_parent(parent);
  ScratchDirectory directory("progress");
  REQUIRE(directory.make());
  set_scratch_parent("");
  const std::string path = directory.path();
  REQUIRE(fs::path(path).parent_path() == parent);
  fs::remove_all(parent);
  REQUIRE(directory.make());
  CHECK(directory.path() == path);
  CHECK(fs::status(path).permissions() == fs::perms::owner_all);
  remove_abandoned_scratch(base.path());
  remove_abandoned_scratch(parent);
  CHECK(fs::exists(path));
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

TEST_CASE("scratch directories are in the temporary directory if /dev/shm is full") {
  const int result = with_memory_directory("4m", [] {
    ScratchDirectory in_memory("early");
    if (!in_memory.make() || !is_in_memory_directory(in_memory.path())) return 1;
    fill_memory_directory();
    ScratchDirectory on_disk("late");
    return on_disk.make() && !is_in_memory_directory(on_disk.path()) ? 0 : 2;
  });
  if (result == kCannotMount) {
    WARN("skipped: /dev/shm cannot be covered without root");
    return;
  }
  CHECK(result == 0);
}

TEST_CASE("heartbeat files move to the temporary directory when /dev/shm is full") {
  const int result = with_memory_directory("4m", make_heartbeats_before_and_after_it_is_full);
  if (result == kCannotMount) {
    WARN("skipped: /dev/shm cannot be covered without root");
    return;
  }
  CHECK(result == 0);
}

}  // namespace drun::agent

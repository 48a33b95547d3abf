#include "launcher/facts/host.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "launcher/facts/files.h"
#include "tests/support/catch.h"

namespace drun {
namespace {

// A new empty folder, removed at the end.
class Folder {
 public:
  Folder() {
    char path[] = "/tmp/drun_host_XXXXXX";
    REQUIRE(mkdtemp(path) != nullptr);
    path_ = path;
  }
  ~Folder() {
    for (const char* name : {"file", "link", "folder"}) {
      unlink((path_ + "/" + name).c_str());
      rmdir((path_ + "/" + name).c_str());
    }
    rmdir(path_.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string at(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("the host reports this process's properties") {
  setenv("DRUN_HOST_TEST", "a=b", 1);
  const HostFacts facts = look_at_host();
  char name[256] = {};
  REQUIRE(gethostname(name, sizeof(name) - 1) == 0);
  CHECK(facts.hostname == name);
  cpu_set_t set;
  REQUIRE(sched_getaffinity(0, sizeof(set), &set) == 0);
  CHECK(facts.usable_cpus >= 1);
  CHECK(facts.usable_cpus <= CPU_COUNT(&set));
  CHECK(facts.gpus >= 0);
  CHECK(variable(facts, "DRUN_HOST_TEST") == "a=b");
  CHECK(variable(facts, "DRUN_HOST_TEST_NOT_SET") == std::nullopt);
  CHECK(facts.working_directory.starts_with('/'));
  CHECK(facts.random_id.size() == 32);
  CHECK(facts.random_id != look_at_host().random_id);
}

TEST_CASE("fewer cores are usable if the process is bound to fewer") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  REQUIRE(sched_setaffinity(0, sizeof(one), &one) == 0);
  CHECK(look_at_host().usable_cpus == 1);
  REQUIRE(sched_setaffinity(0, sizeof(before), &before) == 0);
}

TEST_CASE("a path is missing, a folder, or a file with or without the right to execute") {
  const FileProbe probe = look_at_host().probe;
  const Folder folder;
  CHECK(probe(folder.at("file")) == FileKind::Missing);
  std::ofstream(folder.at("file")) << "#!/bin/sh\n";
  CHECK(probe(folder.at("file")) == FileKind::NotExecutable);
  REQUIRE(chmod(folder.at("file").c_str(), 0700) == 0);
  CHECK(probe(folder.at("file")) == FileKind::Executable);
  REQUIRE(mkdir(folder.at("folder").c_str(), 0700) == 0);
  CHECK(probe(folder.at("folder")) == FileKind::Directory);
  REQUIRE(symlink("nowhere", folder.at("link").c_str()) == 0);
  CHECK(probe(folder.at("link")) == FileKind::Missing);
}

TEST_CASE("a host file is read whole, and one that is too large or not regular is rejected") {
  const Folder folder;
  const HostFacts host = look_at_host();
  std::ofstream(folder.at("file")) << std::string(300000, 'x') << "\n";
  CHECK(host.file_text(folder.at("file")) == std::string(300000, 'x').append("\n"));
  std::ofstream(folder.at("file")).close();
  CHECK(host.file_text(folder.at("file")) == "");
  REQUIRE(truncate(folder.at("file").c_str(), (4 << 20) + 1) == 0);
  CHECK_FALSE(host.file_text(folder.at("file")));
  CHECK_FALSE(host.file_text(folder.at("none")));
  CHECK_FALSE(host.file_text(folder.at("")));
  CHECK_FALSE(host.file_text(""));
  REQUIRE(mkfifo(folder.at("link").c_str(), 0600) == 0);
  CHECK_FALSE(host.file_text(folder.at("link")));  // a read of this FIFO would block forever
}

TEST_CASE("a file is written whole, also over an existing file and through a link") {
  const Folder folder;
  REQUIRE(write_file(folder.at("file"), "old text"));
  REQUIRE(write_file(folder.at("file"), "new"));
  CHECK(text_of(folder.at("file")) == "new");
  REQUIRE(symlink(folder.at("file").c_str(), folder.at("link").c_str()) == 0);
  REQUIRE(write_file(folder.at("link"), "linked"));
  CHECK(text_of(folder.at("file")) == "linked");
  struct stat facts {};
  REQUIRE(lstat(folder.at("link").c_str(), &facts) == 0);
  CHECK(S_ISLNK(facts.st_mode));
  CHECK(write_file("/dev/null", "gone"));
  REQUIRE(lstat("/dev/null", &facts) == 0);
  CHECK(S_ISCHR(facts.st_mode));
}

TEST_CASE("a new file is private to its owner, and a replaced file keeps its mode") {
  const Folder folder;
  const auto mode_of = [](const std::string& path) {
    struct stat facts {};
    REQUIRE(stat(path.c_str(), &facts) == 0);
    return facts.st_mode & 07777;
  };
  REQUIRE(write_file(folder.at("file"), "text"));
  CHECK(mode_of(folder.at("file")) == 0600);
  REQUIRE(chmod(folder.at("file").c_str(), 0644) == 0);
  REQUIRE(write_file(folder.at("file"), "new"));
  CHECK(mode_of(folder.at("file")) == 0644);
}

TEST_CASE("a symbolic link of another user is not followed") {
  if (geteuid() != 0) {
    WARN("skipped: only root can give a link away");
    return;
  }
  const Folder folder;
  REQUIRE(write_file(folder.at("file"), "precious"));
  REQUIRE(symlink(folder.at("file").c_str(), folder.at("link").c_str()) == 0);
  REQUIRE(lchown(folder.at("link").c_str(), 65534, 65534) == 0);
  const Result<void> written = write_file(folder.at("link"), "report");
  REQUIRE_FALSE(written);
  CHECK_THAT(written.error().message, ContainsSubstring("it is a link of another user's"));
  CHECK(text_of(folder.at("file")) == "precious");
}

TEST_CASE("an error names a file that cannot be written, and no partial file remains") {
  const Result<void> missing = write_file("/nonexistent/x.json", "text");
  REQUIRE_FALSE(missing);
  CHECK(missing.error().message == "cannot write /nonexistent/x.json: no such file or directory");
  const Result<void> full = write_file("/dev/full", "text");
  REQUIRE_FALSE(full);
  CHECK_THAT(full.error().message, ContainsSubstring("no space left on device"));
  const Folder folder;
  REQUIRE(mkdir(folder.at("folder").c_str(), 0700) == 0);
  CHECK_FALSE(write_file(folder.at("folder"), "text"));
}

}  // namespace drun

#include "launcher/facts/host.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "launcher/facts/files.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/process.h"

namespace drun {

using testing::read_file;
using testing::TemporaryDirectory;

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
  const TemporaryDirectory folder;
  CHECK(probe(folder.file("file")) == FileKind::Missing);
  std::ofstream(folder.file("file")) << "#!/bin/sh\n";
  CHECK(probe(folder.file("file")) == FileKind::NotExecutable);
  REQUIRE(chmod(folder.file("file").c_str(), 0700) == 0);
  CHECK(probe(folder.file("file")) == FileKind::Executable);
  REQUIRE(mkdir(folder.file("folder").c_str(), 0700) == 0);
  CHECK(probe(folder.file("folder")) == FileKind::Directory);
  REQUIRE(symlink("nowhere", folder.file("link").c_str()) == 0);
  CHECK(probe(folder.file("link")) == FileKind::Missing);
}

TEST_CASE("a host file is read whole, and one that is too large or not regular is rejected") {
  const TemporaryDirectory folder;
  const HostFacts host = look_at_host();
  std::ofstream(folder.file("file")) << std::string(300000, 'x') << "\n";
  CHECK(host.file_text(folder.file("file")) == std::string(300000, 'x').append("\n"));
  std::ofstream(folder.file("file")) << "\xef\xbb\xbfhost";  // a byte order mark
  CHECK(host.file_text(folder.file("file")) == "host");
  std::ofstream(folder.file("file")).close();
  CHECK(host.file_text(folder.file("file")) == "");
  REQUIRE(truncate(folder.file("file").c_str(), (4 << 20) + 1) == 0);
  CHECK_FALSE(host.file_text(folder.file("file")));
  CHECK_FALSE(host.file_text(folder.file("none")));
  CHECK_FALSE(host.file_text(folder.file("")));
  CHECK_FALSE(host.file_text(""));
  REQUIRE(mkfifo(folder.file("link").c_str(), 0600) == 0);
  CHECK_FALSE(host.file_text(folder.file("link")));  // a read of this FIFO would block forever
}

TEST_CASE("a file is written whole, also over an existing file and through a link") {
  const TemporaryDirectory folder;
  REQUIRE(write_file(folder.file("file"), "old text"));
  REQUIRE(write_file(folder.file("file"), "new"));
  CHECK(read_file(folder.file("file")) == "new");
  REQUIRE(symlink(folder.file("file").c_str(), folder.file("link").c_str()) == 0);
  REQUIRE(write_file(folder.file("link"), "linked"));
  CHECK(read_file(folder.file("file")) == "linked");
  struct stat facts {};
  REQUIRE(lstat(folder.file("link").c_str(), &facts) == 0);
  CHECK(S_ISLNK(facts.st_mode));
  CHECK(write_file("/dev/null", "gone"));
  REQUIRE(lstat("/dev/null", &facts) == 0);
  CHECK(S_ISCHR(facts.st_mode));
}

TEST_CASE("a new file is private to its owner, and a replaced file keeps its mode") {
  const TemporaryDirectory folder;
  const auto mode_of = [](const std::string& path) {
    struct stat facts {};
    REQUIRE(stat(path.c_str(), &facts) == 0);
    return facts.st_mode & 07777;
  };
  REQUIRE(write_file(folder.file("file"), "text"));
  CHECK(mode_of(folder.file("file")) == 0600);
  REQUIRE(chmod(folder.file("file").c_str(), 0644) == 0);
  REQUIRE(write_file(folder.file("file"), "new"));
  CHECK(mode_of(folder.file("file")) == 0644);
}

TEST_CASE("a symbolic link of another user is not followed") {
  if (geteuid() != 0) {
    WARN("skipped: only root can give a link away");
    return;
  }
  const TemporaryDirectory folder;
  REQUIRE(write_file(folder.file("file"), "precious"));
  REQUIRE(symlink(folder.file("file").c_str(), folder.file("link").c_str()) == 0);
  REQUIRE(lchown(folder.file("link").c_str(), 65534, 65534) == 0);
  const Result<void> written = write_file(folder.file("link"), "report");
  REQUIRE_FALSE(written);
  CHECK_THAT(written.error().message, ContainsSubstring("it is a link of another user's"));
  CHECK(read_file(folder.file("file")) == "precious");
}

TEST_CASE("an error names a file that cannot be written, and no partial file remains") {
  const Result<void> missing = write_file("/nonexistent/x.json", "text");
  REQUIRE_FALSE(missing);
  CHECK(missing.error().message == "cannot write /nonexistent/x.json: no such file or directory");
  const Result<void> full = write_file("/dev/full", "text");
  REQUIRE_FALSE(full);
  CHECK_THAT(full.error().message, ContainsSubstring("no space left on device"));
  const TemporaryDirectory folder;
  REQUIRE(mkdir(folder.file("folder").c_str(), 0700) == 0);
  CHECK_FALSE(write_file(folder.file("folder"), "text"));
}

TEST_CASE("a FIFO with a reader gets the whole text, and one without a reader is an error") {
  const TemporaryDirectory folder;
  const std::string fifo = folder.file("fifo");
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  const Result<void> unread = write_file(fifo, "text");
  REQUIRE_FALSE(unread);
  CHECK(unread.error().message == "cannot write " + fifo + ": it is a pipe without a reader");
  const std::string text(300000, 'x');  // more than it holds
  UniqueFd reader(open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  REQUIRE(fcntl(reader.get(), F_SETFL, 0) == 0);
  // Until write_file() has opened it: without a writer, the reader would be at the end of the file.
  std::optional<UniqueFd> writer(std::in_place, open(fifo.c_str(), O_WRONLY | O_CLOEXEC));
  std::string read;
  std::thread reading([&read, fd = std::move(reader)] {
    std::array<char, 4096> part{};
    ssize_t count = 0;
    while ((count = ::read(fd.get(), part.data(), part.size())) > 0)
      read.append(part.data(), static_cast<std::size_t>(count));
  });
  const Result<void> written = write_file(fifo, text);
  writer.reset();
  reading.join();
  CHECK(written);
  CHECK(read == text);
}

}  // namespace drun

// Tests --hosts where drun is not installed and the launcher sends a copy.
#include <filesystem>

#include "tests/support/catch.h"
#include "tests/support/job.h"
#include "tests/support/job_traces.h"
#include "tests/support/places.h"
#include "tests/support/plain_ssh.h"

namespace drun::testing {
namespace {

namespace fs = std::filesystem;

// Makes the hosts look for drun at `place`, and gives each host a separate home directory.
std::string login(const std::string& homes, const std::string& place) {
  return "export HOME=" + homes +
         "/$1; mkdir -p $HOME; unset XDG_CACHE_HOME; export PATH=/usr/bin:/bin\n"
         "set -- \"$1\" \"$(printf %s \"$2\" | sed \"s|' [^ ]*/drun\\( [^ ]*\\)*$|' " +
         place + "\\1|\")\"";
}

std::vector<fs::path> copies_in(const std::string& home) {
  std::vector<fs::path> found;
  std::error_code ec;
  for (const auto& each : fs::directory_iterator(home + "/.cache/drun/copies", ec))
    found.push_back(each.path());
  return found;
}

}  // namespace

TEST_CASE("a host without drun gets a copy of this one, and keeps it") {
  const TemporaryDirectory homes;
  const PlainSsh ssh(login(homes.path(), "/nowhere/drun"));
  const auto job = [&ssh](const Words& options) {
    return run(ssh.launch("a,b", options,
                          "umask; echo rank $RANK; tr '\\0' ' ' </proc/$PPID/cmdline; echo"),
               60s);
  };
  const Ended first = job({});
  INFO(first.out << first.err);
  CHECK(first.code == 0);
  for (const std::string host : {"a", "b"}) {
    CHECK_THAT(first.err, ContainsSubstring(host + ": copying drun ") &&
                              ContainsSubstring(" to this host, which has no drun\n"));
    const auto copies = copies_in(homes.file(host));
    REQUIRE(copies.size() == 1);
    CHECK(copies.front().filename().string().size() == 64);
    CHECK(read_file(copies.front().string() + "/drun") == read_file(built("drun")));
    CHECK_THAT(first.out, ContainsSubstring(copies.front().string() + "/drun"));
  }
  CHECK(count(first.out, "rank ") == 2);
  CHECK(count(first.out, "0022\n") == 2);

  const Ended again = job({});
  INFO(again.out << again.err);
  CHECK(again.code == 0);
  CHECK(again.err.empty());
  CHECK(count(again.out, "/.cache/drun/copies/") == 2);

  // Only the four most recently used copies are kept.
  for (int i = 0; i < 5; ++i)
    fs::create_directories(homes.file("a/.cache/drun/copies/" + std::to_string(i)));
  CHECK(job({}).code == 0);
  CHECK(copies_in(homes.file("a")).size() == 4);

  const Ended without = job({"--no-copy"});
  CHECK(without.code == 127);
  CHECK_THAT(without.err, ContainsSubstring("a: drun: not found at /nowhere/drun or on PATH on "
                                            "this host; install it\n"));
}

TEST_CASE("a host with another version of drun gets a copy of this one") {
  const TemporaryDirectory homes;
  write_file(homes.file("drun"),
             "#!/bin/sh\n[ \"$1\" = --version ] && exec echo 'drun 0.9.0 (commit 1)'\nexit 9\n",
             true);
  const PlainSsh ssh(login(homes.path(), homes.file("drun")));
  const Ended ended = run(ssh.launch("a", {}, "echo rank $RANK"), 60s);
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, ContainsSubstring(" to this host, which has drun 0.9.0 (commit 1)\n"));
}

TEST_CASE("a copy of drun that cannot be made or run is reported with the reason") {
  const TemporaryDirectory homes;
  const auto fails = [&homes](const std::string& before, int code, const std::string& reason) {
    const PlainSsh ssh(login(homes.path(), "/nowhere/drun") + "\n" + before);
    const Ended ended = run(ssh.launch("a", {}, "true"), 60s);
    INFO(ended.err);
    CHECK(ended.code == code);
    CHECK_THAT(ended.err,
               ContainsSubstring("cannot start on 1 of 1 hosts; nothing was started\n") &&
                   ContainsSubstring(reason));
  };
  fs::create_directories(homes.file("bin"));
  const auto replace = [&homes](const std::string& program, const std::string& script) {
    write_file(homes.file("bin/" + program), "#!/bin/sh\n" + script + "\n", true);
  };
  const std::string path = "export PATH=" + homes.file("bin") + ":$PATH";
  fails("export HOME=/proc/nowhere", 126,
        "cannot copy drun to this host: cannot write to /proc/nowhere");
  replace("uname", "echo riscv64");
  fails(path, 127, "not copied: this host is riscv64, and the drun that would be copied is for");
  fs::remove(homes.file("bin/uname"));
  replace("head", "exec /usr/bin/head -c 1000");
  fails(path, 126, "cannot copy drun to this host: it is not complete");
  CHECK(copies_in(homes.file("a")).size() == 1);
  CHECK(fs::is_empty(copies_in(homes.file("a")).front()));
  // A program for another system is transferred completely, but not kept.
  replace("head",
          "[ $1 != -n ] || exec /usr/bin/head -n 1\n/usr/bin/head -c $2 >/dev/null\n"
          "printf '#!/bin/sh\\necho no such library >&2\\nexit 1\\n'");
  replace("sha256sum", "d=$(dirname \"$(readlink /proc/self/fd/0)\"); echo \"${d##*/}  -\"");
  fails(path, 126, "it does not run here: no such library; install drun here, or start the job");
  CHECK(copies_in(homes.file("a")).empty());
}

}  // namespace drun::testing

#include "agent/output/output.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "agent/output/console.h"
#include "agent/output/log_files.h"
#include "tests/support/catch.h"
#include "tests/support/output_rig.h"
#include "tests/support/places.h"
#include "tests/support/process.h"
#include "tests/support/stalling_file_system.h"

namespace drun::agent {
namespace {

using test::OutputRig;
using testing::read_file;
namespace fs = std::filesystem;

const std::string kLines = testing::built("bench/lines");

// A console made of two files.
struct FileConsole {
  FileConsole() : out(create("out")), err(create("err")) {}
  UniqueFd create(const char* name) const {
    return UniqueFd(
        ::open((directory / name).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  }
  ConsoleFds fds() const { return {.out = out.get(), .err = err.get()}; }
  std::string out_text() const { return read_file(directory / "out"); }
  std::string err_text() const { return read_file(directory / "err"); }

  test::TemporaryDirectory directory;
  UniqueFd out;
  UniqueFd err;
};

OutputSpec spec_of(StreamPlan out, StreamPlan err, std::optional<std::string> log_dir = "") {
  OutputSpec spec;
  spec.streams.assign(8, {out, err});
  spec.log_dir = std::move(log_dir);
  return spec;
}

constexpr StreamPlan kConsole{};
constexpr StreamPlan kLabeled{.is_labeled = true};
constexpr StreamPlan kTee{.to_file = true, .to_console = true, .is_labeled = true};
constexpr StreamPlan kRedirect{.to_file = true, .to_console = false};
constexpr StreamPlan kNowhere{.to_file = false, .to_console = false};

}  // namespace

TEST_CASE("lines of eight workers reach a file whole, all of them, in order") {
  const bool is_labeled = GENERATE(false, true);
  const FileConsole console;
  OutputRig rig(spec_of(is_labeled ? kLabeled : kConsole, kConsole), console.fds());
  std::vector<std::string> scripts;
  for (int rank = 0; rank < 8; ++rank)
    scripts.push_back(kLines + " write " + std::to_string(rank) + " 20000 90 " +
                      std::to_string(1000 + 777 * rank));
  rig.start(scripts);
  REQUIRE(rig.drain());
  test::Worker checker(kLines + " check 8 20000 90 " + (console.directory / "out"), 1, 2);
  CHECK(checker.wait() == 0);
  if (is_labeled) {
    for (const std::string& line : test::split_lines(console.out_text())) {
      const std::string label = "[default" + line.substr(line.find('@') + 1, 1) + "]:@";
      if (!line.starts_with(label)) FAIL("wrong label: " << line);
    }
  }
}

TEST_CASE("stdout goes to stdout and stderr to stderr") {
  const FileConsole console;
  OutputRig rig(spec_of(kConsole, kConsole), console.fds());
  rig.start({"echo out; echo err >&2"});
  REQUIRE(rig.drain());
  CHECK(console.out_text() == "out\n");
  CHECK(console.err_text() == "err\n");
  CHECK(rig.drained == 1);
}

TEST_CASE("a label contains role, local rank, rank, node and host") {
  const FileConsole console;
  OutputSpec spec = spec_of(kLabeled, kLabeled);
  spec.label_template = "${role_name}/${local_rank}/${rank}/${node_rank}/${host}> ";
  OutputRig rig(spec, console.fds());
  rig.start({":", "echo one; echo two"});
  REQUIRE(rig.drain());
  CHECK(console.out_text() == "default/1/5/1/here> one\ndefault/1/5/1/here> two\n");
}

TEST_CASE("an unread console blocks the workers, and no output is lost") {
  test::PipeEnds pipe = test::make_plain_pipe();
  OutputRig rig(spec_of(kConsole, kConsole),
                {.out = pipe.write_end.get(), .err = pipe.write_end.get()});
  // 32 MB, far more than pipes and queue hold: the worker could exit early only if drun buffered
  // everything in memory.
  rig.start({"exec " + kLines + " write 0 320000 100"});
  REQUIRE(test::run_until_blocked(rig.io, rig.workers[0].pid()));
  CHECK(rig.workers[0].is_running());
  CHECK_FALSE(test::is_non_blocking(pipe.write_end.get()));
  test::Collector reader(rig.io, std::move(pipe.read_end));
  reader.start();
  REQUIRE(rig.drain());
  REQUIRE(test::run_until(rig.io, [&] { return reader.text().size() >= 32000000; }));
  CHECK(reader.text().size() == 32000000);
  CHECK(reader.text().ends_with("\n"));
  const test::TemporaryDirectory directory;
  const UniqueFd copy(::open((directory / "copy").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(::write(copy.get(), reader.text().data(), reader.text().size()) == 32000000);
  test::Worker checker(kLines + " check 1 320000 100 " + (directory / "copy"), 1, 2);
  CHECK(checker.wait() == 0);
}

TEST_CASE("a console that goes away does not affect workers, and their files get everything") {
  FileConsole console;
  test::PipeEnds pipe = test::make_plain_pipe();
  OutputRig rig(spec_of(kTee, kConsole, console.directory / "logs"),
                {.out = pipe.write_end.get(), .err = console.err.get()});
  pipe.read_end.reset();
  rig.start({"exec " + kLines + " write 0 50000 100", "seq 1 1000; exit 7"});
  REQUIRE(rig.drain());
  CHECK(rig.workers[0].wait() == 0);
  CHECK(rig.workers[1].wait() == 7);
  CHECK(read_file(rig.output.log_place() + "/attempt_0/0/stdout.log").size() == 5000000);
  CHECK(test::split_lines(read_file(rig.output.log_place() + "/attempt_0/1/stdout.log")).size() ==
        1000);
  REQUIRE(rig.log.size() == 1);
  CHECK_THAT(rig.log[0], ContainsSubstring("the console is closed"));
}

TEST_CASE("a teed stream is on the console with labels, and unchanged in its file") {
  const FileConsole console;
  OutputRig rig(spec_of(kTee, kTee, console.directory / "logs"), console.fds());
  rig.start({"printf 'one\\n\\r 10%%\\r 20%%\\nlast'; echo err >&2"});
  REQUIRE(rig.drain());
  CHECK(console.out_text() ==
        "[default0]:one\n\r[default0]: 10%\r[default0]: 20%\n[default0]:last\n");
  CHECK(console.err_text() == "[default0]:err\n");
  const std::string place = rig.output.log_place() + "/attempt_0/0/";
  CHECK(read_file(place + "stdout.log") == "one\n\r 10%\r 20%\nlast");
  CHECK(read_file(place + "stderr.log") == "err\n");
  CHECK(rig.streams[0].error_file == place + "error.json");
  CHECK(rig.streams[0].stderr_file == place + "stderr.log");
}

TEST_CASE("a redirected stream is written to its file only") {
  const FileConsole console;
  OutputRig rig(spec_of(kRedirect, kRedirect, console.directory / "logs"), console.fds());
  rig.start({"test -f /proc/self/fd/1 && echo file; echo err >&2; kill -9 $$"});
  REQUIRE(rig.drain());
  CHECK(console.out_text().empty());
  CHECK(console.err_text().empty());
  CHECK(read_file(rig.output.log_place() + "/attempt_0/0/stdout.log") == "file\n");
  CHECK_FALSE(rig.output.stderr_tail(0));  // stderr is redirected to a file, so it has no tail
  CHECK(read_file(rig.streams[0].stderr_file) == "err\n");
}

TEST_CASE("a stream without a destination goes to /dev/null") {
  const FileConsole console;
  OutputRig rig(spec_of(kNowhere, kConsole), console.fds());
  rig.start({"echo lost; readlink /proc/self/fd/1 >&2"});
  REQUIRE(rig.drain());
  CHECK(console.out_text().empty());
  CHECK(rig.streams[0].error_file.empty());
}

TEST_CASE("in raw mode workers inherit drun's descriptors, except for streams that go to files") {
  const FileConsole console;
  OutputSpec spec = spec_of(kConsole, kRedirect, console.directory / "logs");
  spec.mode = OutputMode::Raw;
  OutputRig rig(spec, console.fds());
  rig.start({"printf part; echo err >&2"});
  REQUIRE(rig.drain());
  CHECK(rig.streams[0].stdout_fd == console.out.get());
  CHECK(console.out_text() == "part");
  CHECK(console.err_text().empty());
}

TEST_CASE("teed lines that match the filter are collected from all workers, with labels") {
  const FileConsole console;
  OutputSpec spec = spec_of(kTee, kConsole, console.directory / "logs");
  spec.streams[1][0] = kConsole;  // not teed, so not filtered
  spec.duplicate_stdout_filters = {"loss", "error"};
  spec.duplicate_stderr_filters = {"err"};
  OutputRig rig(spec, console.fds());
  rig.start({"echo loss 1; echo other; printf 'an error'; echo err >&2", "echo loss 2"});
  REQUIRE(rig.drain());
  const std::string attempt = rig.output.log_place() + "/attempt_0/";
  CHECK(read_file(attempt + "filtered_stdout.log") == "[default0]:loss 1\n[default0]:an error\n");
  CHECK(read_file(attempt + "filtered_stderr.log").empty());
}

TEST_CASE("the last lines of stderr are complete as soon as the worker is reaped") {
  const FileConsole console;
  OutputRig rig(spec_of(kConsole, kConsole), console.fds());
  rig.start(
      {"i=0; while [ $i -lt 30 ]; do echo line $i >&2; i=$((i+1)); done; printf 'the end' >&2"});
  REQUIRE(rig.workers[0].wait() == 0);  // the loop has not run: everything is in the pipe
  const std::vector<std::string> tail =
      rig.output.stderr_tail(0).value_or(std::vector<std::string>());
  REQUIRE(tail.size() == 20);
  CHECK(tail.front() == "line 11");
  CHECK(tail.back() == "the end");
  CHECK_FALSE(rig.output.stderr_tail(1));
  REQUIRE(rig.drain());
  CHECK(test::split_lines(console.err_text()).size() == 31);
  CHECK(rig.output.stderr_tail(0) == tail);
}

TEST_CASE("a descendant that keeps the pipe open is waited for until the timeout only") {
  const FileConsole console;
  OutputRig rig(spec_of(kConsole, kConsole), console.fds());
  rig.start({"sleep 600 & echo $!; echo last"});
  REQUIRE(rig.drain(std::chrono::milliseconds(50)));
  const std::vector<std::string> lines = test::split_lines(console.out_text());
  REQUIRE(lines.size() == 2);
  CHECK(lines[1] == "last");
  ::kill(std::stoi(lines[0]), SIGKILL);
  REQUIRE(rig.log.size() == 1);
  CHECK_THAT(rig.log[0], ContainsSubstring("processes of the workers"));
}

TEST_CASE("output of a descendant that exits before the timeout is read completely") {
  const FileConsole console;
  const std::string fifo = console.directory / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  OutputRig rig(spec_of(kConsole, kConsole), console.fds());
  rig.start({"(read word < " + fifo + "; echo $word) & echo parent"});
  REQUIRE(test::run_until(rig.io, [&] { return !rig.workers[0].is_running(); }));
  rig.output.drain(std::chrono::seconds(30), [&] { ++rig.drained; });
  REQUIRE(test::run_until(rig.io, [&] { return console.out_text() == "parent\n"; }));
  CHECK(rig.drained == 0);
  test::Worker(std::string("echo child > ") + fifo, 1, 2).wait();
  REQUIRE(test::run_until(rig.io, [&] { return rig.drained == 1; }));
  CHECK(console.out_text() == "parent\nchild\n");
  CHECK(rig.log.empty());
}

TEST_CASE("stdout and stderr on one pipe keep lines whole across both") {
  test::PipeEnds pipe = test::make_plain_pipe();
  OutputRig rig(spec_of(kConsole, kConsole),
                {.out = pipe.write_end.get(), .err = pipe.write_end.get()});
  test::Collector reader(rig.io, std::move(pipe.read_end));
  reader.start();
  rig.start(
      {"exec " + kLines + " write 0 5000 100 37 >&2", "exec " + kLines + " write 1 5000 100 41"});
  REQUIRE(rig.drain());
  REQUIRE(test::run_until(rig.io, [&] { return reader.text().size() >= 1000000; }));
  for (const std::string& line : test::split_lines(reader.text()))
    if (line.size() != 99 || line.rfind('@') != 0) FAIL("torn: " << line);
}

TEST_CASE("a second round has a separate attempt directory and starts on a new line") {
  const FileConsole console;
  OutputRig rig(spec_of(kConsole, kTee, console.directory / "logs"), console.fds());
  rig.start({"printf first; echo 1 >&2; exit 1"}, 0);
  REQUIRE(rig.drain());
  rig.start({"printf second; echo 2 >&2"}, 1);
  REQUIRE(rig.drain());
  CHECK(rig.drained == 2);
  CHECK(console.out_text() == "first\nsecond");
  CHECK(read_file(rig.output.log_place() + "/attempt_0/0/stderr.log") == "1\n");
  CHECK(read_file(rig.output.log_place() + "/attempt_1/0/stderr.log") == "2\n");
}

TEST_CASE("the temporary directory is removed unless it holds redirected streams") {
  const bool is_redirected = GENERATE(false, true);
  const FileConsole console;
  OutputRig rig(spec_of(is_redirected ? kRedirect : kConsole, kConsole, std::nullopt),
                console.fds());
  rig.start({"echo out"});
  const std::string place = rig.output.log_place();
  CHECK(fs::is_directory(fs::path(rig.streams[0].error_file).parent_path()));
  REQUIRE(rig.drain());
  rig.output.finish();
  CHECK(fs::exists(place) == is_redirected);
  CHECK(rig.output.log_place() == (is_redirected ? place : ""));
  fs::remove_all(place);
}

TEST_CASE("an unusable log directory is reported before any worker starts") {
  const FileConsole console;
  OutputRig rig(spec_of(kConsole, kConsole, console.directory / "out"), console.fds());
  const Result<void> prepared = rig.output.prepare("job");
  REQUIRE_FALSE(prepared);
  CHECK_THAT(prepared.error().message, ContainsSubstring(console.directory / "out"));
}

TEST_CASE("giving up ends a drain that waits for an unread console") {
  const test::PipeEnds pipe = test::make_plain_pipe();
  OutputRig rig(spec_of(kConsole, kConsole),
                {.out = pipe.write_end.get(), .err = pipe.write_end.get()});
  rig.start({"exec " + kLines + " write 0 320000 100"});
  REQUIRE(test::run_until_blocked(rig.io, rig.workers[0].pid()));
  rig.output.drain(std::chrono::hours(1), [&] { ++rig.drained; });
  rig.output.stop();
  CHECK(rig.drained == 0);
  rig.io.restart();
  rig.io.run_for(std::chrono::seconds(10));
  CHECK(rig.io.stopped());
  CHECK(rig.drained == 1);
  CHECK(rig.workers[0].wait() == 128 + SIGPIPE);
}

TEST_CASE("drun's own lines start on a new line") {
  const FileConsole console;
  OutputRig rig(spec_of(kConsole, kConsole), console.fds());
  rig.start({"printf 'no newline' >&2"});
  REQUIRE(rig.drain());
  rig.output.say("from drun");
  REQUIRE(test::run_until(rig.io, [&] { return console.err_text().ends_with("drun\n"); }));
  CHECK(console.err_text() == "no newline\nfrom drun\n");
}

TEST_CASE("a log line never lands inside a progress bar") {
  const FileConsole console;
  const std::string go = console.directory / "go";
  OutputRig rig(spec_of(kConsole, kConsole), console.fds());
  rig.start({"printf '\\r 50%%|####     |' >&2; until [ -e " + go +
             " ]; do sleep 0.01; done; printf '\\r100%%|#########|' >&2"});
  REQUIRE(test::run_until(rig.io, [&] { return !console.err_text().empty(); }));
  rig.output.say("from drun");
  testing::write_file(go, "");
  REQUIRE(rig.drain());
  CHECK(console.err_text() == "\r 50%|####     |\nfrom drun\n\r100%|#########|");
}

TEST_CASE(
    "a log on an unread console never blocks, and reports the number of dropped lines later") {
  const FileConsole console;
  test::PipeEnds pipe = test::make_plain_pipe();
  OutputRig rig(spec_of(kConsole, kConsole),
                {.out = console.out.get(), .err = pipe.write_end.get()});
  rig.start({});
  const std::string line(1000, 'x');
  constexpr std::size_t kCount = 2000;
  for (std::size_t i = 0; i < kCount; ++i) rig.output.say(line);
  CHECK(rig.log.empty());
  test::Collector reader(rig.io, std::move(pipe.read_end));
  reader.start();
  REQUIRE(test::run_until(rig.io, [&] { return !rig.log.empty(); }));
  REQUIRE(rig.drain());
  std::size_t dropped = 0;
  REQUIRE(std::sscanf(rig.log[0].c_str(), "dropped %zu log lines", &dropped) == 1);
  REQUIRE(test::run_until(
      rig.io, [&] { return reader.text().size() >= (kCount - dropped) * (line.size() + 1); }));
  CHECK(reader.text().size() == (kCount - dropped) * (line.size() + 1));
  CHECK((kCount - dropped) * line.size() > kOwnLinesBytes);
}

TEST_CASE("a log directory that hangs blocks its writer threads, not the loop") {
  test::StallingFileSystem files;
  if (!files.is_mounted()) {
    WARN("skipped: cannot mount a FUSE file system: " << files.why());
    return;
  }
  const FileConsole console;
  OutputRig rig(spec_of(kTee, kRedirect, files / "logs"), console.fds());
  rig.start({"exec " + kLines + " write 0 320000 100", "echo 1234 >&2; exec sleep 600"});
  REQUIRE(test::run_until(rig.io, [&] {
    return rig.output.printed(0) > 0U && read_file(rig.streams[1].stderr_file) == "1234\n";
  }));
  files.stall();
  // No request blocks the loop now.
  auto slowest = std::chrono::steady_clock::duration::zero();
  const auto begin = std::chrono::steady_clock::now();
  auto before = begin;
  bool has_read = false;
  rig.output.run_off_loop([path = rig.streams[1].stderr_file] { read_end_of(path, 100); },
                          [&has_read](bool has_run) { has_read = has_run; });
  REQUIRE(test::run_until(rig.io, [&] {
    rig.output.printed(0);
    rig.output.printed(1);
    rig.output.stderr_tail(0);
    const auto now = std::chrono::steady_clock::now();
    slowest = std::max(slowest, now - before);
    before = now;
    return now - begin > std::chrono::seconds(2);
  }));
  CHECK(slowest < std::chrono::seconds(1));
  CHECK_FALSE(has_read);
  CHECK(rig.workers[0].is_running());
  files.resume();
  REQUIRE(test::run_until(rig.io, [&] { return has_read; }));
  ::kill(rig.workers[1].pid(), SIGKILL);
  REQUIRE(rig.drain());
  CHECK(rig.workers[0].wait() == 0);
  const std::string log = rig.output.log_place() + "/attempt_0/0/stdout.log";
  CHECK(read_file(log).size() == 32000000);
  test::Worker checker(kLines + " check 1 320000 100 " + log, 1, 2);
  CHECK(checker.wait() == 0);
}

TEST_CASE("giving up ends a drain that waits for a log directory that hangs") {
  test::StallingFileSystem files;
  if (!files.is_mounted()) {
    WARN("skipped: cannot mount a FUSE file system: " << files.why());
    return;
  }
  const FileConsole console;
  OutputRig rig(spec_of(kTee, kConsole, files / "logs"), console.fds());
  rig.start({"exec " + kLines + " write 0 320000 100"});
  // Wait until its exec is over: exec closes descriptors of log files, and would hang with them.
  REQUIRE(test::run_until(rig.io, [&] { return rig.output.printed(0) > 0U; }));
  files.stall();
  REQUIRE(test::run_until_blocked(rig.io, rig.workers[0].pid()));
  rig.output.drain(std::chrono::hours(1), [&] { ++rig.drained; });
  rig.output.stop();
  REQUIRE(test::run_until(rig.io, [&] { return rig.drained == 1; }));
  bool has_opened = true;
  rig.output.open_round({}, [&](auto opened) { has_opened = opened.has_value(); });
  REQUIRE(test::run_until(rig.io, [&] { return !has_opened; }));
  files.resume();
}

}  // namespace drun::agent

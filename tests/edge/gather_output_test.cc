// Tests the outputs of two nodes without a network. One node sends its lines to the other.
#include <fcntl.h>
#include <sys/stat.h>

#include "rendezvous/protocol/line_window.h"
#include "tests/support/catch.h"
#include "tests/support/output_rig.h"
#include "tests/support/places.h"
#include "tests/support/process.h"

namespace drun::agent {
namespace {

using rendezvous::Lines;
using test::OutputRig;
using testing::read_file;

const std::string kLinesProgram = testing::built("bench/lines");

OutputSpec gathering(std::optional<std::string> log_dir = "") {
  OutputSpec spec;
  spec.gathers = true;
  spec.label_template = "[${host}:${rank}]: ";
  spec.log_dir = std::move(log_dir);
  spec.streams.assign(
      4, {StreamPlan{.to_file = true, .is_labeled = true}, StreamPlan{.is_labeled = true}});
  return spec;
}

struct Files {
  Files() : out(create("out")), err(create("err")) {}
  UniqueFd create(const char* name) const {
    return UniqueFd(
        ::open((directory / name).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  }
  ConsoleFds fds() const { return {.out = out.get(), .err = err.get()}; }
  test::TemporaryDirectory directory;
  UniqueFd out;
  UniqueFd err;
};

// The node (ranks 4 and up) and the coordinator, whose loops run together.
struct TwoNodes {
  TwoNodes(const Files& node_console, ConsoleFds coordinator_console,
           std::optional<std::string> log_dir = "")
      : node(gathering(), node_console.fds()),
        coordinator(gathering(std::move(log_dir)), coordinator_console) {
    for (OutputRig* rig : {&node, &coordinator}) {
      REQUIRE(rig->output.prepare("job"));
      rig->is_prepared = true;
    }
    sink = coordinator.output.log_sink([this](std::uint64_t peer, std::size_t cost) {
      if (const std::size_t granted = ledger.taken(peer, cost); granted > 0)
        node.output.line_listener()->on_lines_taken(granted);
    });
    connect();
    coordinator.start({});
  }

  void connect() {
    node.output.line_listener()->on_lines_wanted(kWindow, [this](const Lines& lines) {
      if (is_cut) return;
      REQUIRE(ledger.accept(7, rendezvous::cost_bytes(lines)));
      sink->on_lines(
          {.peer = 7, .node_rank = 1, .rank = 4 + lines.local_rank, .host = "b", .role = "default"},
          lines);
    });
  }
  bool until(const std::function<bool()>& condition) {
    return test::run_until(node.io, [&] {
      coordinator.io.restart();
      coordinator.io.poll();
      return condition();
    });
  }
  // Waits until the node's workers have exited, and all their output has been sent and written to
  // the coordinator's console and files.
  bool drain() {
    bool is_drained = false;
    const auto all_gone = [this] {
      for (test::Worker& worker : node.workers)
        if (worker.is_running()) return false;
      return true;
    };
    if (!until(all_gone)) return false;
    for (OutputRig* rig : {&node, &coordinator}) {
      is_drained = false;
      rig->output.drain(std::chrono::seconds(30), [&is_drained] { is_drained = true; });
      if (!until([&is_drained] { return is_drained; })) return false;
    }
    return true;
  }

  static constexpr std::size_t kWindow = std::size_t{256} << 10;
  OutputRig node;
  OutputRig coordinator;
  rendezvous::LineLedger ledger{kWindow};
  rendezvous::LogSink* sink = nullptr;
  bool is_cut = false;
};

}  // namespace

TEST_CASE("gathered lines are on the coordinator's console and in a file for each rank") {
  const Files here;
  const Files there;
  TwoNodes nodes(here, there.fds(), there.directory / "logs");
  nodes.node.start({"seq 1 1000; printf last; echo oops >&2", "seq 2000 3000"});
  REQUIRE(nodes.drain());
  CHECK(read_file(here.directory / "out").empty());
  CHECK(read_file(there.directory / "err") == "[b:4]: oops\n");
  std::string of_4;
  for (const std::string& line : test::split_lines(read_file(there.directory / "out")))
    if (line.starts_with("[b:4]: ")) of_4 += line.substr(7) + "\n";
  std::string expected;
  for (int i = 1; i <= 1000; ++i) expected += std::to_string(i) + "\n";
  CHECK(of_4 == expected + "last\n");
  const std::string place = nodes.coordinator.output.log_place() + "/attempt_0/";
  CHECK(read_file(place + "4/stdout.log") == expected + "last");
  CHECK(test::split_lines(read_file(place + "5/stdout.log")).size() == 1001);
}

TEST_CASE("an unread console of the coordinator blocks the node's workers") {
  const Files here;
  test::PipeEnds pipe = test::make_plain_pipe();
  TwoNodes nodes(here, {.out = pipe.write_end.get(), .err = pipe.write_end.get()});
  nodes.node.start({"exec " + kLinesProgram + " write 0 320000 100"});
  int quiet = 0;
  REQUIRE(nodes.until([&] {
    const std::string stat =
        read_file("/proc/" + std::to_string(nodes.node.workers[0].pid()) + "/stat");
    quiet = stat.find(") S ") != stat.npos ? quiet + 1 : 0;
    return quiet > 20;
  }));
  CHECK(nodes.node.workers[0].is_running());
  test::Collector reader(nodes.coordinator.io, std::move(pipe.read_end));
  reader.start();
  REQUIRE(nodes.drain());
  constexpr std::size_t kAll = 320000 * (100 + sizeof("[b:4]: ") - 1);
  REQUIRE(nodes.until([&] { return reader.text().size() >= kAll; }));
  CHECK(reader.text().size() == kAll);
  const UniqueFd copy(::open((here.directory / "copy").c_str(), O_WRONLY | O_CREAT, 0600));
  REQUIRE(::write(copy.get(), reader.text().data(), kAll) == static_cast<ssize_t>(kAll));
  test::Worker checker(kLinesProgram + " check 1 320000 100 " + (here.directory / "copy"), 1, 2);
  CHECK(checker.wait() == 0);
}

TEST_CASE("lines longer than a message stay whole among those of other ranks") {
  const Files here;
  const Files there;
  TwoNodes nodes(here, there.fds());
  const std::string line = "head -c 300000 /dev/zero | tr '\\0' ";
  nodes.node.start({"for i in 1 2 3; do " + line + "a; echo; done",
                    "for i in 1 2 3; do " + line + "b; echo; done; seq 1 2000"});
  REQUIRE(nodes.drain());
  int long_lines = 0;
  for (const std::string& each : test::split_lines(read_file(there.directory / "out"))) {
    if (each.size() < 1000) continue;
    ++long_lines;
    CHECK((each == "[b:4]: " + std::string(300000, 'a') ||
           each == "[b:5]: " + std::string(300000, 'b')));
  }
  CHECK(long_lines == 6);
}

TEST_CASE("a node that loses the coordinator prints the lines that were not confirmed") {
  const Files here;
  const Files there;
  TwoNodes nodes(here, there.fds());
  nodes.is_cut = true;
  const std::string fifo = here.directory / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  nodes.node.start({"echo one; printf tw; read line < " + fifo + "; echo o; echo three"});
  REQUIRE(nodes.until([&] { return nodes.node.output.printed(0) == 6U; }));
  nodes.node.output.line_listener()->on_lines_lost();
  const UniqueFd go(::open(fifo.c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(::write(go.get(), "x\n", 2) == 2);
  REQUIRE(nodes.drain());
  CHECK(read_file(here.directory / "out") == "[here:4]: one\n[here:4]: two\n[here:4]: three\n");
  CHECK(read_file(there.directory / "out").empty());
}

TEST_CASE("an unfinished line is completed with a newline when its connection ends") {
  const Files here;
  const Files there;
  TwoNodes nodes(here, there.fds());
  nodes.node.start({"printf 'half a line\\r'; exec sleep 600"});
  REQUIRE(nodes.until([&] { return !read_file(there.directory / "out").empty(); }));
  nodes.sink->on_lines_end(7);
  REQUIRE(nodes.until([&] { return read_file(there.directory / "out").ends_with("\n"); }));
  CHECK(read_file(there.directory / "out") == "[b:4]: half a line\r\n");
  nodes.node.output.stop();
}

TEST_CASE("a node that gives up stops waiting for the coordinator") {
  const Files here;
  const Files there;
  TwoNodes nodes(here, there.fds());
  nodes.is_cut = true;
  nodes.node.start({"echo unheard"});
  REQUIRE(nodes.until([&] { return !nodes.node.workers[0].is_running(); }));
  bool is_drained = false;
  nodes.node.output.drain(std::chrono::seconds(30), [&is_drained] { is_drained = true; });
  REQUIRE(nodes.until([&] { return nodes.node.output.printed(0) == 8U; }));
  CHECK_FALSE(is_drained);
  nodes.node.output.stop();
  CHECK(nodes.until([&] { return is_drained; }));
}

}  // namespace drun::agent

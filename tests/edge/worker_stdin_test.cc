// Tests the forwarding of standard input over the lifeline to a worker's pipe.
#include "agent/workers/worker_stdin.h"

#include <poll.h>
#include <unistd.h>

#include <numeric>

#include "tests/support/catch.h"
#include "tests/support/event_loop.h"

namespace drun::agent {
namespace {

World world_from(int base_rank) {
  World world;
  world.base_rank = base_rank;
  return world;
}

// An agent's input: what it sends to the launcher, and what a worker reads.
struct StdinRig {
  int open(int base_rank = 0) {
    const Result<int> fd = input.open(StdinSource::Rank0, world_from(base_rank), 0);
    REQUIRE(fd);
    return *fd;
  }
  std::size_t room() const { return std::accumulate(rooms.begin(), rooms.end(), std::size_t{0}); }
  // Returns what a worker reads until end of file.
  std::string read_all(int fd) {
    std::string all;
    const UniqueFd own(dup(fd));
    input.on_input_end();
    char buffer[65536];
    for (;;) {
      io.restart();
      io.poll();
      const ssize_t got = read(own.get(), buffer, sizeof buffer);
      if (got <= 0) return all;
      all.append(buffer, static_cast<std::size_t>(got));
    }
  }

  asio::io_context io{1};
  std::vector<std::size_t> rooms;
  WorkerStdin input{io, true, [this](const std::string& line) {
                      const auto room = parse_room(line);
                      REQUIRE(room);
                      rooms.push_back(*room);
                    }};
};

}  // namespace

TEST_CASE("room for rank 0 is announced once, and it reads the input to its end") {
  StdinRig rig;
  const int fd = rig.open();
  CHECK(rig.rooms == std::vector<std::size_t>{kInputRoomBytes});
  CHECK(rig.open() == fd);  // the next round's
  CHECK(rig.rooms.size() == 1);
  rig.input.on_input("one\ntw");
  rig.input.on_input("o");
  CHECK(rig.read_all(fd) == "one\ntwo");
  rig.input.stop();
}

TEST_CASE("input to a worker that does not read is bounded by the window and does not block") {
  StdinRig rig;
  const int fd = rig.open();
  const std::string block(16 << 10, 'x');
  std::size_t sent = 0;
  for (;;) {
    while (sent + block.size() <= rig.room()) {
      rig.input.on_input(block);
      sent += block.size();
    }
    rig.io.restart();
    if (rig.io.poll() == 0) break;
  }
  CHECK(sent >= kInputRoomBytes);
  CHECK(sent <= 2 * kInputRoomBytes);
  rig.input.on_input("too much");  // dropped: it exceeds the window
  CHECK(rig.read_all(fd).size() == sent);
  rig.input.stop();
  rig.io.restart();
  rig.io.run();  // nothing is pending
}

TEST_CASE("a worker reads new input when rank 0 returns from another node") {
  StdinRig rig;
  rig.open();
  rig.input.on_input(std::string(kInputRoomBytes, 'x'));  // more than the pipe holds
  rig.io.poll();
  rig.open(4);  // rank 0 is elsewhere: what it has not read is lost
  rig.io.restart();
  rig.io.poll();
  rig.rooms.clear();
  const int fd = rig.open();
  CHECK(rig.rooms == std::vector<std::size_t>{kInputRoomBytes});
  rig.input.on_input("next");
  rig.io.restart();
  rig.io.poll();
  pollfd asked{.fd = fd, .events = POLLIN, .revents = 0};
  REQUIRE(poll(&asked, 1, 0) == 1);
  CHECK(rig.read_all(fd) == "next");
  rig.input.stop();
}

TEST_CASE("other ranks and other nodes get end of file") {
  StdinRig rig;
  char byte = 0;
  CHECK(read(rig.open(4), &byte, 1) == 0);
  const Result<int> second = rig.input.open(StdinSource::Rank0, world_from(0), 1);
  REQUIRE(second);
  CHECK(read(*second, &byte, 1) == 0);
  const Result<int> unread = rig.input.open(StdinSource::DevNull, world_from(0), 0);
  REQUIRE(unread);
  CHECK(read(*unread, &byte, 1) == 0);
  CHECK(rig.rooms.empty());
}

TEST_CASE("without a launcher only rank 0 reads drun's own standard input") {
  asio::io_context io{1};
  WorkerStdin input(io, false, [](const std::string&) { FAIL("told"); });
  const Result<int> rank_0 = input.open(StdinSource::Rank0, world_from(0), 0);
  REQUIRE(rank_0);
  CHECK(*rank_0 == STDIN_FILENO);
  const Result<int> rank_4 = input.open(StdinSource::Rank0, world_from(4), 0);
  REQUIRE(rank_4);
  char byte = 0;
  CHECK(read(*rank_4, &byte, 1) == 0);
}

TEST_CASE("input on the lifeline is not parsed as commands") {
  struct Heard : Signals::Listener, Lifeline::Input {
    void on_terminate(int signal) override { text += "<" + std::to_string(signal) + ">"; }
    void on_kill_now() override { text += "<kill>"; }
    void on_pass_on(int signal) override { text += "<pass " + std::to_string(signal) + ">"; }
    void on_input(std::string_view bytes) override { text += bytes; }
    void on_input_end() override { text += "<end>"; }
    std::string text;
  } heard;
  const std::string bytes = "input 9\nsignal 2\n\ninput 5\nkill\npass 10\ninput 0\ninput end\n";
  const std::size_t piece = GENERATE(std::size_t{1}, std::size_t{3}, std::size_t{1000});
  asio::io_context io{1};
  int fds[2];
  REQUIRE(pipe(fds) == 0);
  const UniqueFd read_end(fds[0]);
  const UniqueFd write_end(fds[1]);
  Signals::Listener& listener = heard;
  Lifeline lifeline(io, read_end.get(), "", listener);
  lifeline.give_input_to(heard).start();
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    const std::string part = bytes.substr(at, piece);
    REQUIRE(write(write_end.get(), part.data(), part.size()) == static_cast<ssize_t>(part.size()));
    io.poll();
  }
  CHECK(test::run_until(io, [&] { return heard.text == "signal 2\nkill\n<pass 10><end>"; }));
  lifeline.stop();
  io.restart();
  io.run();
}

}  // namespace drun::agent

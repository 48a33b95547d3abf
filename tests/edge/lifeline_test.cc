#include "agent/process/lifeline.h"

#include <unistd.h>

#include <csignal>
#include <memory>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/event_loop.h"

namespace drun::agent {
namespace {

using Heard = std::vector<std::string>;

// A lifeline on a pipe, and the events that it reported.
struct Line : Signals::Listener {
  explicit Line(const std::string& pending = "",
                std::chrono::milliseconds silence = kLifelineSilence) {
    int fds[2];
    REQUIRE(pipe(fds) == 0);
    read_end = UniqueFd(fds[0]);
    write_end = UniqueFd(fds[1]);
    Signals::Listener& listener = *this;
    lifeline = std::make_unique<Lifeline>(io, read_end.get(), pending, listener, silence);
    lifeline->start();
  }
  void on_terminate(int signal) override { heard.push_back("terminate " + std::to_string(signal)); }
  void on_kill_now() override { heard.push_back("kill"); }
  void on_pass_on(int signal) override { heard.push_back("pass " + std::to_string(signal)); }

  void say(const std::string& text) const {
    REQUIRE(write(write_end.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  bool hears(const Heard& expected) {
    return test::run_until(io, [&] { return heard == expected; });
  }

  asio::io_context io{1};
  UniqueFd read_end;
  UniqueFd write_end;
  Heard heard;
  std::unique_ptr<Lifeline> lifeline;
};

}  // namespace

TEST_CASE("lines on the lifeline act as signals") {
  Line line;
  line.say("\n\npass 10\nsig");
  CHECK(line.hears({"pass 10"}));
  line.say("nal 2\npass 9\nsignal x\nsignal 0\nnonsense\nkill\nkill\n");
  CHECK(line.hears({"pass 10", "terminate 2", "terminate 15", "kill"}));
  line.lifeline->stop();
  line.io.run();
}

TEST_CASE("input that was read before the lifeline started is processed") {
  Line line("signal 15\npass 1");
  line.say("2\n");
  CHECK(line.hears({"terminate 15", "pass 12"}));
}

TEST_CASE("a second lifeline continues where the first one stopped, also inside rank 0's input") {
  Line line("signal 2\ninput 14\n");
  line.say("pass 10\n");
  CHECK(line.hears({"terminate 2"}));
  line.io.run_for(std::chrono::milliseconds(1));
  line.lifeline->stop();
  line.io.restart();
  line.io.run();
  const std::unique_ptr<Lifeline> first = std::move(line.lifeline);
  line.lifeline = std::make_unique<Lifeline>(line.io, line.read_end.get(), "", line);
  line.lifeline->continue_after(*first).start();
  line.say("kill!\nsignal 15\n");
  CHECK(line.hears({"terminate 2", "terminate 15"}));
  CHECK_FALSE(line.lifeline->has_ended());
}

TEST_CASE("the end of the lifeline's input ends the job, once") {
  Line line;
  line.write_end.reset();
  line.io.run();  // and the loop can end
  CHECK(line.heard == Heard{"terminate 1"});
  CHECK(line.lifeline->has_ended());
}

TEST_CASE("a silent lifeline counts as ended, and every line restarts the timeout") {
  Line line("", std::chrono::milliseconds(400));
  const auto begun = std::chrono::steady_clock::now();
  asio::steady_timer tick(line.io);
  tick.expires_after(std::chrono::milliseconds(200));
  tick.async_wait([&line](const error_code&) { line.say("\n"); });
  line.io.run();
  CHECK(line.heard == Heard{"terminate 1"});
  CHECK(std::chrono::steady_clock::now() - begun >= std::chrono::milliseconds(600));
}

TEST_CASE("a line without an end is not buffered without limit") {
  Line line;
  for (int i = 0; i < 100; ++i) {
    line.say(std::string(1000, 'x'));
    line.io.run_for(std::chrono::milliseconds(1));
  }
  line.say("\nsignal 15\n");
  CHECK(line.hears({"terminate 15"}));
}

}  // namespace drun::agent

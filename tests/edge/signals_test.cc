// Tests how signals sent to drun become requests to terminate, to kill, or to forward a signal.
#include "agent/process/signals.h"

#include <csignal>

#include "tests/support/catch.h"
#include "tests/support/machine.h"

namespace drun::agent {
namespace {

using std::chrono::milliseconds;

struct SignalRecorder : Signals::Listener {
  void on_terminate(int signal) override { heard.push_back("terminate " + std::to_string(signal)); }
  void on_kill_now() override { heard.push_back("kill"); }
  void on_pass_on(int signal) override { heard.push_back("pass " + std::to_string(signal)); }

  // Raises the signal and runs the loop until its effects are handled.
  void send(int signal, milliseconds before = milliseconds(0)) {
    io.restart();
    asio::steady_timer timer(io);
    timer.expires_after(before);
    timer.async_wait([signal](error_code) { std::raise(signal); });
    io.run_for(before + milliseconds(20));
  }

  asio::io_context io{1};
  Signals signals{io, {SIGTERM, SIGINT, SIGHUP, SIGKILL}, *this};
  std::vector<std::string> heard;
};

using Heard = std::vector<std::string>;

}  // namespace

TEST_CASE("the first termination signal is reported, repeated ones are not") {
  SignalRecorder recorder;
  recorder.signals.start();
  recorder.send(SIGTERM);
  recorder.send(SIGTERM);
  recorder.send(SIGHUP);
  CHECK(recorder.heard == Heard{"terminate 15"});
}

TEST_CASE("a second Ctrl-C kills, but two at the same moment do not") {
  SignalRecorder recorder;
  recorder.signals.start();
  recorder.send(SIGINT);
  recorder.send(SIGINT);
  CHECK(recorder.heard == Heard{"terminate 2"});
  recorder.send(SIGINT, milliseconds(250));
  recorder.send(SIGINT, milliseconds(250));
  CHECK(recorder.heard == Heard{"terminate 2", "kill"});
}

TEST_CASE("USR1, USR2 and CONT are passed on") {
  SignalRecorder recorder;
  recorder.signals.start();
  for (const int signal : {SIGUSR1, SIGUSR2, SIGCONT, SIGUSR1}) recorder.send(signal);
  CHECK(recorder.heard == Heard{"pass 10", "pass 12", "pass 18", "pass 10"});
}

TEST_CASE("a signal that was ignored at the start stays ignored") {
  std::signal(SIGHUP, SIG_IGN);
  SignalRecorder recorder;
  recorder.signals.start();
  recorder.send(SIGHUP);
  std::signal(SIGHUP, SIG_DFL);
  CHECK(recorder.heard.empty());
}

TEST_CASE("after stop the io_context can end") {
  SignalRecorder recorder;
  recorder.signals.start();
  recorder.signals.stop();
  const auto begin = std::chrono::steady_clock::now();
  recorder.io.run_for(std::chrono::seconds(10));
  CHECK(std::chrono::steady_clock::now() - begin < test::scaled(std::chrono::seconds(5)));
}

}  // namespace drun::agent

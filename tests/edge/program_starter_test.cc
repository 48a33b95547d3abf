// Tests that a slow exec of a helper program (ssh, gdb ...) does not block the event loop.
#include "agent/spawn/program_starter.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/stacks/helper_program.h"
#include "launcher/remote/ssh_session.h"
#include "tests/support/catch.h"
#include "tests/support/machine.h"
#include "tests/support/stalled_program.h"

namespace drun::agent {
namespace {

using namespace std::chrono_literals;
using test::StalledProgram;

// An event loop with a periodic timer.
struct Loop {
  Loop() { tick(); }

  // The tick count shows that the loop runs.
  void tick() {
    timer.expires_after(5ms);
    timer.async_wait([this](const error_code& ec) {
      if (ec) return;
      ++ticks;
      tick();
    });
  }
  bool run_until(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + test::scaled(30s);
    while (!condition() && std::chrono::steady_clock::now() < deadline) io.run_one_for(100ms);
    return condition();
  }
  // Returns true if the loop runs while the exec is pending.
  bool goes_on_beside(const StalledProgram& program) {
    if (!run_until([&] { return StalledProgram::is_waited_for(); })) return false;
    const int before = ticks;
    return program.is_stalled() && run_until([&] { return ticks >= before + 3; });
  }

  asio::io_context io{1};
  asio::steady_timer timer{io};
  int ticks = 0;
};

struct Session {
  Session(Loop& loop, ProgramStarter& starter, const std::string& program)
      : own_program(loop.io, Log()),
        ssh(loop.io, hosts::SshMeans{buffer, starter, own_program},
            {.argv = {program}, .name = "gpu1", .first_line = "", .nonce = "n"},
            {.on_frame = [](const Frame&) {},
             .on_stray = [](bool, std::string_view) {},
             .is_held_up = [] { return false; },
             .on_ended =
                 [this](int ended_with, const std::string& why) {
                   code = ended_with;
                   reason = why;
                 }}) {
    ssh.start();
  }

  std::vector<char> buffer = std::vector<char>(4096);
  std::optional<int> code;
  std::string reason;
  hosts::OwnProgram own_program;
  hosts::SshSession ssh;
};

}  // namespace

TEST_CASE("a helper program whose exec is slow does not block the loop") {
  StalledProgram program;
  if (skips(program)) return;
  Loop loop;
  ProgramStarter starter(loop.io, 4);
  std::optional<Helper::End> end;
  Helper helper(loop.io, starter, {program.path()}, {}, test::scaled(20s),
                [&](const Helper::End& ended) { end = ended; });
  CHECK(loop.goes_on_beside(program));
  CHECK(helper.pid() > 0);
  CHECK_FALSE(end);
  program.release();
  REQUIRE(loop.run_until([&] { return end.has_value(); }));
  CHECK_FALSE(end->is_late);
  CHECK(end->trouble.empty());
}

TEST_CASE("a helper program whose exec is still pending at its limit is killed") {
  StalledProgram program;
  if (skips(program)) return;
  Loop loop;
  ProgramStarter starter(loop.io, 1);
  std::optional<Helper::End> end;
  std::optional<Helper::End> second_end;
  Helper helper(loop.io, starter, {program.path()}, {}, 50ms,
                [&](const Helper::End& ended) { end = ended; });
  Helper second(loop.io, starter, {"/bin/echo", "hello"}, {}, test::scaled(20s),
                [&](const Helper::End& ended) { second_end = ended; });
  REQUIRE(loop.run_until([&] { return end.has_value(); }));
  CHECK(end->is_late);
  // The first helper occupied the only slot.
  REQUIRE(loop.run_until([&] { return second_end.has_value(); }));
  CHECK(second_end->output == "hello\n");
}

TEST_CASE("a helper program that cannot be executed reports the reason") {
  Loop loop;
  ProgramStarter starter(loop.io, 2);
  std::vector<Helper::End> ends;
  std::vector<std::unique_ptr<Helper>> helpers;
  for (int i = 0; i < 5; ++i)
    helpers.push_back(
        std::make_unique<Helper>(loop.io, starter, std::vector<std::string>{"/no/such/program"},
                                 std::span<const std::string>(), test::scaled(20s),
                                 [&](const Helper::End& ended) { ends.push_back(ended); }));
  REQUIRE(loop.run_until([&] { return ends.size() == helpers.size(); }));
  for (const Helper::End& end : ends) CHECK_THAT(end.trouble, ContainsSubstring("no such file"));
}

TEST_CASE("an ssh whose exec is slow does not block the loop, and its exit code is reported") {
  StalledProgram program;
  if (skips(program)) return;
  Loop loop;
  ProgramStarter starter(loop.io, 1);
  Session session(loop, starter, program.path());
  Session waiting(loop, starter, "/bin/true");  // for a slot
  CHECK(loop.goes_on_beside(program));
  CHECK_FALSE((session.code || waiting.code));
  program.release();
  REQUIRE(loop.run_until([&] { return session.code && waiting.code; }));
  CHECK((*session.code == 0 && *waiting.code == 0));
}

TEST_CASE("an ssh whose exec is pending, or that waits for a slot, can be killed") {
  StalledProgram program;
  if (skips(program)) return;
  Loop loop;
  ProgramStarter starter(loop.io, 1);
  Session session(loop, starter, program.path());
  Session waiting(loop, starter, "/bin/true");
  REQUIRE(loop.run_until([&] { return StalledProgram::is_waited_for(); }));
  waiting.ssh.kill();
  REQUIRE(loop.run_until([&] { return waiting.code.has_value(); }));
  CHECK(*waiting.code == 137);
  session.ssh.kill();
  REQUIRE(loop.run_until([&] { return session.code.has_value(); }));
  CHECK(*session.code == 137);
}

TEST_CASE("an ssh that cannot be executed ends with 127 or 126 and the reason") {
  Loop loop;
  ProgramStarter starter(loop.io, 12);
  Session missing(loop, starter, "/no/such/ssh");
  Session directory(loop, starter, "/tmp");
  REQUIRE(loop.run_until([&] { return missing.code && directory.code; }));
  CHECK(*missing.code == 127);
  CHECK_THAT(missing.reason, ContainsSubstring("cannot start /no/such/ssh: no such file"));
  CHECK(*directory.code == 126);
}

TEST_CASE("sessions that end before the exec of their ssh leave no process and no pending work") {
  StalledProgram program;
  if (skips(program)) return;
  Loop loop;
  {
    ProgramStarter starter(loop.io, 1);
    Session session(loop, starter, program.path());
    Session waiting(loop, starter, "/bin/true");
    REQUIRE(loop.run_until([&] { return StalledProgram::is_waited_for(); }));
    session.ssh.kill();
  }
  const int before = loop.ticks;
  CHECK(loop.run_until([&] { return loop.ticks > before + 3; }));
}

}  // namespace drun::agent

#include "launcher/remote/launch_machine.h"

#include <csignal>

#include "tests/support/catch.h"

namespace drun::hosts {
namespace {

using std::chrono_literals::operator""s;

constexpr Time kStart{};

std::string text(const Action& action) {
  if (const auto* login = std::get_if<LogIn>(&action))
    return "login " + std::to_string(login->host);
  if (const auto* say = std::get_if<SendLine>(&action))
    return (say->line == to_text(Go{}) ? "go" : say->line) + " to " + std::to_string(say->host);
  if (const auto* let_go = std::get_if<CloseStdin>(&action))
    return "let go " + std::to_string(let_go->host);
  if (const auto* kill = std::get_if<KillSsh>(&action)) return "kill " + std::to_string(kill->host);
  if (const auto* without = std::get_if<ContinueWithout>(&action))
    return "without " + std::to_string(without->host) + " " + without->problem;
  return "remind";
}

// A launch whose events and clock the test controls.
struct Launch {
  explicit Launch(std::size_t hosts, int fanout = 64) : state(launching_of(hosts, fanout, 120s)) {
    plan.nodes.resize(hosts);
    for (std::size_t i = 0; i < hosts; ++i) plan.nodes[i].name = "n" + std::to_string(i);
  }
  std::string after(const Event& event) {
    std::string told;
    for (const Action& action : step(state, event, now))
      told += (told.empty() ? "" : "; ") + text(action);
    return told;
  }
  std::string ready(std::size_t host) { return after(HelloCame{host, Hello{}}); }
  std::string cannot(std::size_t host, const std::string& why, int code) {
    return after(HelloCame{host, Hello{.problem = why, .exit_code = code}});
  }
  std::string ended(std::size_t host, int code, const std::string& words = "") {
    return after(SessionEnded{host, code, words});
  }
  void run() {
    after(Began{});
    for (std::size_t i = 0; i < state.hosts.size(); ++i) ready(i);
  }
  std::string wake() {
    now = deadline(state).value();
    return after(TimerExpired{});
  }
  LaunchEnd end() const { return launch_end(state, plan, "drun"); }

  Launching state;
  HostPlan plan;
  Time now = kStart;
};

// The first three hosts have seats; of two hosts, only the first has one.
Launch elastic(std::size_t hosts, int least) {
  Launch launch(hosts);
  launch.state.least_hosts = least;
  for (std::size_t seat = 0; seat < (hosts < 3 ? 1 : 3); ++seat) launch.state.seats.push_back(seat);
  return launch;
}

}  // namespace

TEST_CASE("the job does not start before every host is ready") {
  Launch launch(3);
  CHECK(launch.after(Began{}) == "login 0; login 1; login 2");
  CHECK(launch.ready(2).empty());
  CHECK(launch.ready(0).empty());
  CHECK(launch.ready(1) == "go to 0; go to 1; go to 2");
}

TEST_CASE("the fanout limits the number of concurrent logins") {
  Launch launch(4, 2);
  CHECK(launch.after(Began{}) == "login 0; login 1");
  CHECK(launch.ready(1) == "login 2");
  CHECK(launch.cannot(0, "no", 127) == "let go 0; login 3");
  CHECK(launch.ended(2, 255, "gone").empty());
  CHECK(launch.ready(3) == "let go 1; let go 3");
}

TEST_CASE(
    "the problems of all hosts are collected, and the first host's determines the exit code") {
  Launch launch(4);
  launch.after(Began{});
  CHECK(launch.ready(0).empty());
  CHECK(launch.cannot(2, "no such file", 127) == "let go 2");
  CHECK(launch.ended(2, 0).empty());
  CHECK(launch.ended(1, 255, "ssh: refused\nssh: twice\r\n").empty());
  CHECK(launch.ended(3, 0) == "let go 0");
  CHECK_FALSE(is_over(launch.state));
  CHECK(launch.ended(0, 0).empty());
  REQUIRE(is_over(launch.state));
  CHECK(launch.end().exit_code == 120);
  CHECK(launch.end().text ==
        "drun: cannot start on 3 of 4 hosts; nothing was started\n"
        "  n1: ssh: refused\n  n1: ssh: twice\n  n2: no such file\n"
        "  n3: ssh ended with exit code 0, without a word\n");
}

TEST_CASE("a ready host that disconnects is a problem, too") {
  Launch launch(3);
  launch.after(Began{});
  launch.ready(0);
  CHECK(launch.ended(0, 255).empty());
  CHECK(launch.ready(1).empty());
  CHECK(launch.ready(2) == "let go 1; let go 2");
  launch.ended(1, 0);
  launch.ended(2, 0);
  CHECK_THAT(launch.end().text, ContainsSubstring("n0: ssh ended with exit code 255"));
}

TEST_CASE("a job whose plans do not fit together starts on no host") {
  Launch launch(2);
  launch.after(Began{});
  launch.ready(1);
  CHECK(launch.after(JobRefused{Error{ErrorCode::Usage, "no rank 9"}}) == "let go 1; kill 0");
  launch.ended(0, 137);
  launch.ended(1, 0);
  REQUIRE(is_over(launch.state));
  CHECK(launch.end().exit_code == 2);
  CHECK_THAT(launch.end().text, ContainsSubstring("drun: no rank 9\n"));
}

TEST_CASE("a host that does not answer is named in a reminder and given up after the timeout") {
  Launch launch(2);
  launch.after(Began{});
  launch.ready(0);
  CHECK(launch.wake() == "remind");
  CHECK(reminder_text(launch.state, launch.plan) == "no answer yet from n1");
  CHECK(progress_text(launch.state, launch.plan, 12s) ==
        "1 of 2 hosts are ready, no answer yet from n1; 12s");
  CHECK(launch.wake() == "kill 1; let go 0");
  CHECK(launch.now == kStart + 120s);
  launch.ended(1, 137);
  launch.ended(0, 0);
  CHECK(launch.end().exit_code == 120);
  CHECK_THAT(launch.end().text, ContainsSubstring("n1: no answer within 120 s"));
}

TEST_CASE("hosts that drun is being copied to are shown as such until they answer") {
  Launch launch(4);
  launch.after(Began{});
  launch.after(CopyBegan{1});
  launch.ready(0);
  CHECK(reminder_text(launch.state, launch.plan) ==
        "no answer yet from n2, n3; copying drun to n1");
  launch.ready(2);
  launch.after(CopyBegan{3});
  CHECK(progress_text(launch.state, launch.plan, 12s) ==
        "2 of 4 hosts are ready, copying drun to n1, n3; 12s");
  launch.ready(1);
  CHECK(reminder_text(launch.state, launch.plan) == "copying drun to n3");
}

TEST_CASE("the end message of node 0 is the outcome of the job") {
  Launch launch(2);
  launch.run();
  launch.after(EndCame{1, End{.exit_code = 41, .text = "from 1\n", .report = {}}});
  launch.after(EndCame{0, End{.exit_code = 41, .text = "from 0\n", .report = "{}"}});
  CHECK(launch.ended(1, 41).empty());
  CHECK(launch.ended(0, 41).empty());
  REQUIRE(is_over(launch.state));
  CHECK(launch.end() == LaunchEnd{41, "from 0\n", "{}"});
}

TEST_CASE("a session that does not end after node 0's session is killed") {
  Launch launch(2);
  launch.run();
  launch.after(EndCame{0, End{}});
  launch.ended(0, 0);
  CHECK(launch.wake() == "kill 1");
  launch.ended(1, 137);
  REQUIRE(is_over(launch.state));
  CHECK(launch.end().exit_code == 0);
}

TEST_CASE("a job does not succeed without an end message from node 0") {
  for (const int code : {0, 255, 137}) {
    Launch launch(2);
    launch.run();
    CHECK(launch.ended(0, code) == "let go 1");
    launch.ended(1, 0);
    REQUIRE(is_over(launch.state));
    CHECK(launch.end().exit_code == (code == 137 ? 137 : 122));
    CHECK_THAT(launch.end().text, ContainsSubstring("lost n0, which led the job"));
  }
}

TEST_CASE("an agent that ended by SIGHUP when its ssh ended is lost, but other exit codes count") {
  for (const int said : {129, 0, 41}) {
    Launch launch(1);
    launch.run();
    launch.after(EndCame{0, End{.exit_code = said, .text = "words\n", .report = {}}});
    launch.ended(0, 255);
    CHECK(launch.end().exit_code == (said == 129 ? 122 : said));
  }
}

TEST_CASE("a node that ends before node 0 is the cause if node 0 keeps running") {
  Launch launch(2);
  launch.run();
  launch.after(EndCame{1, End{.exit_code = 2, .text = "no log folder\n", .report = {}}});
  CHECK(launch.ended(1, 2).empty());
  CHECK(launch.wake() == "signal 15 to 0");
  launch.after(EndCame{0, End{.exit_code = 143, .text = "ended by SIGTERM\n", .report = {}}});
  launch.ended(0, 143);
  CHECK(launch.end().exit_code == 2);
  CHECK(launch.end().text == "no log folder\n");
}

TEST_CASE("a node that reports success before node 0 is not the cause, however long node 0 takes") {
  Launch launch(2);
  launch.run();
  launch.after(EndCame{1, End{}});
  launch.ended(1, 0);
  CHECK_FALSE(deadline(launch.state));
  launch.after(EndCame{0, End{.exit_code = 0, .text = "done\n", .report = "{}"}});
  launch.ended(0, 0);
  CHECK(launch.end() == LaunchEnd{0, "done\n", "{}"});
}

TEST_CASE("node 0's end message counts although its session ends long after another node's") {
  Launch launch(2);
  launch.run();
  const End failed{.exit_code = 41, .text = "from 1\n", .report = {}};
  SECTION("if it arrives after the other session's end") {
    launch.after(EndCame{1, failed});
    launch.ended(1, 41);
    launch.after(EndCame{0, End{.exit_code = 41, .text = "from 0\n", .report = "{}"}});
  }
  SECTION("if it arrives before") {
    launch.after(EndCame{0, End{.exit_code = 41, .text = "from 0\n", .report = "{}"}});
    launch.after(EndCame{1, failed});
    launch.ended(1, 41);
  }
  CHECK_FALSE(deadline(launch.state));
  launch.ended(0, 41);
  CHECK(launch.end() == LaunchEnd{41, "from 0\n", "{}"});
}

TEST_CASE("no session is killed, and node 0 is not stopped, while output arrives or waits") {
  Launch launch(2);
  launch.run();
  const auto wake_with_output = [&launch] {
    launch.now = deadline(launch.state).value();
    return launch.after(TimerExpired{.last_output = launch.now - 1s});
  };
  SECTION("after node 0's session") {
    launch.after(EndCame{0, End{}});
    launch.ended(0, 0);
    CHECK(wake_with_output().empty());
    CHECK(wake_with_output().empty());
    CHECK(launch.now == kStart + 11s);
    CHECK(launch.wake() == "kill 1");
  }
  SECTION("after another node's session") {
    launch.ended(1, 2);
    CHECK(wake_with_output().empty());
    CHECK(launch.wake() == "signal 15 to 0");
  }
  SECTION("but not by a line now and then") {
    launch.after(EndCame{0, End{}});
    launch.ended(0, 0);
    launch.now = deadline(launch.state).value();
    CHECK(launch.after(TimerExpired{.last_output = launch.now - 5s}) == "kill 1");
  }
}

TEST_CASE("the first signal is sent to node 0, while forwarded signals and kills are sent to all") {
  Launch launch(3);
  launch.run();
  CHECK(launch.after(SignalCame{SIGINT}) == "signal 2 to 0");
  CHECK(launch.after(SignalCame{SIGTERM}).empty());
  CHECK(launch.after(ForwardSignal{SIGUSR1}) == "pass 10 to 0; pass 10 to 1; pass 10 to 2");
  CHECK(launch.after(KillCame{}) == "kill to 0; kill to 1; kill to 2");
}

TEST_CASE(
    "after the end of node 0 the hosts that have not ended get the signal from the launcher") {
  Launch launch(3);
  launch.run();
  launch.after(SignalCame{SIGINT});
  launch.after(EndCame{2, End{}});
  CHECK(launch.after(EndCame{0, End{}}) == "signal 2 to 1");
}

TEST_CASE("a signal before the start ends all sessions") {
  Launch launch(4, 2);
  launch.after(Began{});
  launch.ready(0);
  CHECK(launch.after(SignalCame{SIGINT}) == "let go 0; kill 1; kill 2");
  CHECK(launch.after(KillCame{}) == "kill 0; kill 1; kill 2");
  for (const std::size_t host : {0U, 1U, 2U}) launch.ended(host, 137);
  REQUIRE(is_over(launch.state));
  CHECK(launch.end().exit_code == 130);
  CHECK_THAT(launch.end().text, ContainsSubstring("ended by SIGINT before all hosts were ready"));
}

TEST_CASE("an elastic job starts without hosts that fail if enough are ready") {
  Launch launch = elastic(4, 2);
  launch.after(Began{});
  launch.ready(0);
  CHECK(launch.cannot(1, "no such file", 127) == "let go 1");
  CHECK(launch.ended(3, 255, "ssh: refused\r\n").empty());
  CHECK(launch.ready(2) == "without 1 no such file; without 3 ssh: refused\r\n; go to 0; go to 2");
  CHECK(going_without_text({3, "ssh: refused\r\n"}, launch.plan) == "n3 is left out: ssh: refused");
}

TEST_CASE("an elastic job does not start below the minimum or without a majority of the seats") {
  Launch few = elastic(3, 2);
  few.after(Began{});
  few.ready(1);
  few.ended(0, 255, "down");
  CHECK(few.ended(2, 255, "down") == "let go 1");
  few.ended(1, 0);
  CHECK_THAT(few.end().text, ContainsSubstring("and --nnodes asks for 2 at least"));
  CHECK(few.end().exit_code == 120);

  Launch seats = elastic(5, 2);
  seats.after(Began{});
  for (const std::size_t host : {0u, 3u, 4u}) seats.ready(host);
  seats.ended(1, 255, "down");
  CHECK(seats.ended(2, 255, "down") == "let go 0; let go 3; let go 4");
  for (const std::size_t host : {0u, 3u, 4u}) seats.ended(host, 0);
  CHECK_THAT(seats.end().text, ContainsSubstring("two of the first three, where all meet"));
}

TEST_CASE("a lost host of an elastic job is reported, and the others determine the outcome") {
  Launch launch = elastic(3, 1);
  launch.run();
  CHECK(launch.ended(0, 255) == "without 0 ");
  CHECK_THAT(going_without_text({0, ""}, launch.plan), ContainsSubstring("lost n0"));
  CHECK_FALSE(deadline(launch.state));
  launch.after(EndCame{1, End{.exit_code = 0, .text = "fine"}});
  CHECK(launch.ended(1, 0).empty());
  CHECK(deadline(launch.state) == kStart + kEndGrace);
  // This host had lost the others and ended late.
  launch.after(EndCame{2, End{.exit_code = 122, .text = "lost"}});
  CHECK(launch.ended(2, 122).empty());
  CHECK(is_over(launch.state));
  CHECK(launch.end().exit_code == 0);
  CHECK(launch.end().text == "fine");
}

TEST_CASE("the early end message of an isolated host is not the outcome of an elastic job") {
  Launch launch = elastic(3, 1);
  launch.run();
  launch.after(EndCame{2, End{.exit_code = 122, .text = "lost"}});
  CHECK(launch.ended(2, 122).empty());
  CHECK_FALSE(deadline(launch.state));
  launch.after(EndCame{0, End{.exit_code = 41, .text = "failed"}});
  launch.ended(0, 41);
  launch.after(EndCame{1, End{.exit_code = 41, .text = "failed"}});
  launch.ended(1, 41);
  CHECK(launch.end().exit_code == 41);
}

TEST_CASE("an elastic job that loses all its hosts reports that") {
  Launch launch = elastic(2, 1);
  launch.run();
  CHECK(launch.ended(0, 255) == "without 0 ");
  CHECK(launch.ended(1, 255) == "without 1 ");
  CHECK(launch.end().exit_code == 122);
  CHECK_THAT(launch.end().text, ContainsSubstring("lost all hosts"));
}

TEST_CASE("the first signal is sent to all hosts of an elastic job") {
  Launch launch = elastic(3, 1);
  launch.run();
  CHECK(launch.after(SignalCame{SIGINT}) == "signal 2 to 0; signal 2 to 1; signal 2 to 2");
  CHECK(launch.ended(1, 130).empty());
}

TEST_CASE("all hosts receive the addresses and ports of the hosts that coordinate the job") {
  Launch launch(3);
  launch.state.endpoints = {0};
  launch.after(Began{});
  const auto hello = [](int port, const std::string& machine) {
    return Hello{.place = {.port = port, .addresses = {"10.0.0.1", "127.0.0.1", "b d", "fe80::1"}},
                 .machine = machine};
  };
  SECTION("from several machines") {
    launch.after(HelloCame{0, hello(4711, "m1")});
    launch.after(HelloCame{1, hello(0, "m1")});
    const std::string told = launch.after(HelloCame{2, hello(0, "m2")});
    const std::string line = told.substr(0, told.find(" to 0; "));
    CHECK(told == line + " to 0; " + line + " to 1; " + line + " to 2");
    const Result<Message> message = parse(line);
    REQUIRE(message);
    const Go* const go = std::get_if<Go>(&*message);
    REQUIRE(go != nullptr);
    CHECK_FALSE(go->is_one_machine);
    REQUIRE(go->places.size() == 1);
    CHECK(go->places[0] == Place{.port = 4711, .addresses = {"10.0.0.1"}});
  }
  SECTION("from one machine") {
    launch.after(HelloCame{0, hello(4711, "m1")});
    launch.after(HelloCame{1, hello(0, "m1")});
    const std::string told = launch.after(HelloCame{2, hello(0, "m1")});
    CHECK(std::get<Go>(*parse(told.substr(0, told.find(" to 0; ")))).is_one_machine);
  }
  SECTION("a host without a valid port cannot coordinate") {
    CHECK(launch.after(HelloCame{0, hello(0, "m1")}) == "let go 0");
    CHECK(launch.after(HelloCame{1, hello(70000, "m1")}).empty());  // is not a coordinator
  }
}

TEST_CASE("a node that cannot reach the endpoint ends the job at once and is the cause") {
  Launch launch(3);
  launch.run();
  const End end{
      .exit_code = 120, .text = "cannot reach\n", .report = "{}", .could_not_reach = true};
  CHECK(launch.after(EndCame{2, end}) == "signal 15 to 0");
  CHECK(launch.after(EndCame{1, end}).empty());
  launch.after(EndCame{0, End{.exit_code = 143, .text = "ended\n", .report = "{}"}});
  for (const std::size_t host : {2u, 1u, 0u}) launch.ended(host, 120);
  REQUIRE(is_over(launch.state));
  CHECK(launch.end() == LaunchEnd{120, "cannot reach\n", "{}"});
}

TEST_CASE(
    "an elastic job continues without a node that cannot reach the endpoint, if enough are left") {
  Launch launch = elastic(3, 2);
  launch.run();
  const End end{.exit_code = 120, .text = "cannot reach\n", .report = "", .could_not_reach = true};
  CHECK(launch.after(EndCame{2, end}) == "without 2 cannot reach\n");
  launch.ended(2, 120);
  CHECK(launch.after(EndCame{1, end}) == "signal 15 to 0");
  launch.ended(1, 120);
  launch.after(EndCame{0, End{.exit_code = 143, .text = "ended\n", .report = ""}});
  launch.ended(0, 143);
  REQUIRE(is_over(launch.state));
  CHECK(launch.end().exit_code == 120);
}

}  // namespace drun::hosts

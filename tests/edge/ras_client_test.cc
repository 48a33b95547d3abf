#include "agent/nccl_ras/ras_service.h"

#include <atomic>
#include <thread>

#include "agent/nccl_ras/ras_report.h"
#include "agent/nccl_ras/ras_service.h"
#include "tests/support/catch.h"
#include "tests/support/event_loop.h"
#include "tests/support/machine.h"
#include "tests/support/ras_answers.h"
#include "tests/support/raw_socket.h"

namespace drun::agent::ras {
namespace {

using namespace std::chrono_literals;
using test::kOldRasGreeting;
using test::kRasGreeting;
using test::ras_json;
using test::run_until;

// Stands in for NCCL. Each connection gets the next answer; the last answer is repeated.
class Server {
 public:
  using Answer = std::function<void(const RawSocket&)>;

  explicit Server(std::vector<Answer> answers) : answers_(std::move(answers)) {
    thread_ = std::thread([this] {
      for (std::size_t i = 0; !is_over_; ++i) {
        if (!listener_.has_something(20)) {
          --i;
          continue;
        }
        open_.push_back(listener_.accept_one());
        ++served;
        answers_[std::min(i, answers_.size() - 1)](open_.back());
      }
    });
  }
  ~Server() {
    is_over_ = true;
    thread_.join();
  }

  std::uint16_t port() const { return listener_.port(); }
  std::atomic<int> served = 0;

 private:
  RawSocket listener_ = RawSocket::listening();
  std::vector<Answer> answers_;
  std::vector<RawSocket> open_;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

// Reads the question, sends the text, and closes the connection.
Server::Answer says(std::string text) {
  return [text = std::move(text)](const RawSocket& socket) {
    const std::string question(kQuestion);
    if (socket.hear(question.size()) != question) return;
    socket.say(text);
    ::shutdown(socket.fd(), SHUT_RDWR);
  };
}

void says_nothing(const RawSocket&) {}

Result<Report> asked(std::uint16_t port, std::chrono::milliseconds limit = 5s) {
  asio::io_context io{1};
  Client client(io, limit);
  std::optional<Result<Report>> answer;
  client.ask("127.0.0.1", port, [&answer](const Result<Report>& result) { answer = result; });
  CHECK_FALSE(answer);  // the callback is called from the loop only
  REQUIRE(run_until(io, [&answer] { return answer.has_value(); }));
  return *answer;
}

const std::string kJson =
    std::string(kRasGreeting) + ras_json({{.pid = 7, .all_reduces = 5}, {.pid = 8}});
const std::string kText = std::string(kOldRasGreeting) +
                          "Warnings\n========\n\n#0-0 (27a079b828ff1a75) MISMATCH\n"
                          "  Communicator ranks have different collective operation counts\n"
                          "  3 ranks have launched up to operation 6650\n"
                          "  Rank 2 has launched up to operation 6649 -- GPU 2 managed by process "
                          "483074 on node 172.16.64.210\n\n";

}  // namespace

TEST_CASE("answers in both dialects of NCCL's RAS service are parsed") {
  Server json({says(kJson)});
  const auto newer = asked(json.port());
  REQUIRE(newer);
  CHECK(newer->communicators.at(0).ranks.size() == 2);
  Server text({says(kText)});
  const auto older = asked(text.port());
  REQUIRE(older);
  CHECK(older->communicators.at(0).ranks.at(0).process.pid == 483074);
}

TEST_CASE("an answer that arrives byte by byte is read completely") {
  Server slow({[](const RawSocket& socket) {
    for (const char byte : kText) {
      socket.say({&byte, 1});
      std::this_thread::sleep_for(100us);
    }
    ::shutdown(socket.fd(), SHUT_RDWR);
  }});
  CHECK(asked(slow.port(), 20s));
}

TEST_CASE("a port without a listener is reported at once") {
  const auto began = std::chrono::steady_clock::now();
  std::uint16_t port = 0;
  {
    const RawSocket gone = RawSocket::listening();
    port = gone.port();
  }
  const auto answer = asked(port);
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code == ErrorCode::Unreachable);
  CHECK(std::chrono::steady_clock::now() - began < test::scaled(4s));
  asio::io_context io{1};
  Client client(io);
  bool is_refused = false;
  client.ask("some.name", 7, [&](const Result<Report>& result) { is_refused = !result; });
  CHECK(run_until(io, [&] { return is_refused; }));
}

TEST_CASE("if a process does not answer, the next one is asked") {
  Server server({says_nothing, says(kJson)});
  CHECK(asked(server.port()));
  CHECK(server.served == 2);
}

TEST_CASE("if all processes are frozen, the query times out") {
  Server silent({says_nothing});
  const auto answer = asked(silent.port(), 20s);
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code == ErrorCode::Timeout);
  CHECK_THAT(answer.error().message, ContainsSubstring("no answer"));
  CHECK(silent.served == 4);
}

TEST_CASE("an answer that does not end times out") {
  Server server({[](const RawSocket& socket) { socket.say(kRasGreeting); }});
  const auto answer = asked(server.port(), 300ms);
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code == ErrorCode::Timeout);
}

TEST_CASE("garbage and truncated answers are rejected") {
  const std::string text = GENERATE(std::string(), std::string("220 smtp ready\r\n"),
                                    std::string(100'000, 'x'), kJson.substr(0, 300));
  Server server({says(text)});
  const auto answer = asked(server.port());
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code == ErrorCode::Refused);
}

TEST_CASE("concurrent callers share one answer, and none is called after stop") {
  Server server({says(kJson)});
  asio::io_context io{1};
  Client client(io);
  int answers = 0;
  for (int i = 0; i < 3; ++i)
    client.ask("localhost", server.port(), [&](const Result<Report>& answer) {
      CHECK(answer);
      ++answers;
    });
  CHECK(run_until(io, [&] { return answers == 3; }));
  CHECK(server.served == 1);
  Server silent({says_nothing});
  client.ask("127.0.0.1", silent.port(), [&](const Result<Report>&) { ++answers; });
  REQUIRE(run_until(io, [&] { return silent.served == 1; }));
  client.stop();
  io.restart();
  io.run();  // returns: nothing is pending
  CHECK(answers == 3);
}

TEST_CASE("the port reserved for NCCL can be bound by NCCL and by no other program") {
  asio::io_context io{1};
  AgentSpec spec;
  spec.hang_timeout = 60s;
  Service service(io, Log(), spec);
  REQUIRE(service.can_be_asked());
  const auto place = parse_endpoint(service.variable(), 0);
  REQUIRE(place);
  CHECK(place->host == "127.0.0.1");
  CHECK_FALSE(RawSocket::connect_to(place->port).is_open());
  CHECK_FALSE(RawSocket::listening(place->port).is_open());
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(place->port);
  for (int i = 0; i < 2; ++i) {
    const RawSocket nccl(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    ::setsockopt(nccl.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    ::setsockopt(nccl.fd(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
    REQUIRE(::bind(nccl.fd(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(::listen(nccl.fd(), 8) == 0);
    const RawSocket client = RawSocket::connect_to(place->port);
    CHECK(client.is_open());
    CHECK(nccl.has_something(20'000));  // NCCL gets the connection, not the socket that reserves
                                        // the port
  }
  Service other(io, Log(), spec);
  CHECK(other.variable() != service.variable());
}

TEST_CASE("an absent service, or one that sends nonsense, gives no findings and one debug line") {
  Server garbage({says("nonsense\n")});
  asio::io_context io{1};
  std::vector<std::string> lines;
  const Log log([&](LogLevel level, std::string_view line) {
    CHECK(level == LogLevel::Debug);
    lines.emplace_back(line);
  });
  AgentSpec spec;
  spec.worker.environment = {{"NCCL_RAS_ADDR", "127.0.0.1:" + std::to_string(garbage.port())}};
  Service service(io, log, spec);
  CHECK(service.variable().empty());
  int answers = 0;
  for (int i = 0; i < 3; ++i) {
    service.ask({.pids = {1}}, [&](const Findings& findings) {
      CHECK(findings.positions.empty());
      ++answers;
    });
    CHECK(run_until(io, [&] { return answers == i + 1; }));
  }
  CHECK(lines.size() == 1);
  spec.worker.environment.emplace_back("NCCL_RAS_ENABLE", "0");
  Service off(io, log, spec);
  CHECK_FALSE(off.can_be_asked());
  off.ask({.pids = {1}}, [&](const Findings&) { ++answers; });
  CHECK(run_until(io, [&] { return answers == 4; }));
}

}  // namespace drun::agent::ras

// Tests jobs with a secret, and clients without it, on loopback sockets.
#include <random>

#include "rendezvous/member/coordinator_probe.h"
#include "rendezvous/net/frame_reader.h"
#include "rendezvous/protocol/control_wire.h"
#include "tests/support/agents.h"
#include "tests/support/catch.h"
#include "tests/support/machine.h"
#include "tests/support/raw_socket.h"

namespace drun::test {
namespace {

using asio::ip::tcp;
using namespace std::chrono_literals;

JoinSpec with_secret(const std::string& bytes = "0123456789abcdef") {
  JoinSpec spec;
  spec.secret = test_secret(bytes);
  return spec;
}

// Forwards bytes between its clients and a port, and keeps a copy.
class Relay {
 public:
  Relay(asio::io_context& io, std::uint16_t to)
      : io_(io), acceptor_(io, {asio::ip::make_address("127.0.0.1"), 0}), to_(to) {
    accept();
  }
  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }
  const std::string& seen() const { return seen_; }

 private:
  struct Pipe {
    tcp::socket from;
    tcp::socket to;
    std::array<char, 4096> bytes{};
  };

  void accept() {
    acceptor_.async_accept([this](const error_code& ec, tcp::socket socket) {
      if (ec) return;
      tcp::socket out(io_);
      out.connect({asio::ip::make_address("127.0.0.1"), to_});
      const auto dup_of = [this](const tcp::socket& one) {
        return tcp::socket(io_, tcp::v4(), ::dup(const_cast<tcp::socket&>(one).native_handle()));
      };
      carry(std::make_shared<Pipe>(Pipe{dup_of(socket), dup_of(out)}));
      carry(std::make_shared<Pipe>(Pipe{std::move(out), std::move(socket)}));
      accept();
    });
  }
  void carry(const std::shared_ptr<Pipe>& pipe) {
    pipe->from.async_read_some(
        asio::buffer(pipe->bytes), [this, pipe](const error_code& ec, std::size_t size) {
          error_code ignored;
          if (ec) {
            pipe->to.shutdown(tcp::socket::shutdown_send, ignored);
            return;
          }
          seen_.append(pipe->bytes.data(), size);
          asio::write(pipe->to, asio::buffer(pipe->bytes.data(), size), ignored);
          carry(pipe);
        });
  }

  asio::io_context& io_;
  tcp::acceptor acceptor_;
  std::uint16_t to_;
  std::string seen_;
};

// Returns what a relay sees of a node that joins, fails and receives the outcome.
std::string seen_of_a_job(const std::optional<Secret>& secret) {
  JoinSpec coordinator;
  coordinator.secret = secret;
  TestCluster cluster(2, coordinator);
  Relay relay(cluster.io, cluster.port());
  cluster.add(0);
  JoinSpec spec = cluster.spec_of(1);
  spec.endpoint.port = relay.port();
  spec.role = "a-role-of-a-name";
  cluster.add(spec);
  REQUIRE(cluster.until_round(0));
  cluster.agents[1]->fail();
  REQUIRE(cluster.until_all_ended());
  return relay.seen();
}

}  // namespace

TEST_CASE("nodes that share a secret form a normal job with restarts and one root cause") {
  JoinSpec spec = with_secret();
  spec.max_restarts = 1;
  TestCluster cluster(3, spec);
  cluster.add_all();
  REQUIRE(cluster.until_round(0));
  cluster.agents[1]->fail();
  REQUIRE(cluster.until_round(1));
  cluster.agents[2]->fail();
  REQUIRE(cluster.until_all_ended());
  for (auto& agent : cluster.agents) CHECK(agent->outcome == cluster.agents[0]->outcome);
  CHECK(cluster.until([&] { return cluster.is_finished; }));
}

TEST_CASE("traffic of a job with a secret reveals nothing about the job") {
  const std::string plain = seen_of_a_job(std::nullopt);
  const std::string sealed = seen_of_a_job(test_secret());
  for (const char* word : {"edge", "a-role-of-a-name", "host1", "the last line", "drun"}) {
    INFO(word);
    CHECK(plain.find(word) != plain.npos);
    if (std::string_view(word) != "drun") CHECK(sealed.find(word) == sealed.npos);
  }
  CHECK(sealed.size() > 500);
  CHECK(sealed.find("0123456789abcdef") == sealed.npos);
}

TEST_CASE("a node without the job's secret is rejected at once, and the other nodes continue") {
  struct Stranger {
    std::optional<std::string> jobs, own;
    std::string run_id, words, log_words;
  };
  const std::string secret = "0123456789abcdef";
  const auto stranger = GENERATE_COPY(values<Stranger>({
      {secret, "fedcba9876543210", "edge", "has another secret than this node",
       "has another secret than this job"},
      {secret, secret, "other", "has the same secret, but another run id",
       "has the same secret, but another run id"},
      {secret, std::nullopt, "edge", "the job there has a secret and this node has none",
       "it has no secret, and this job has one"},
      {std::nullopt, secret, "edge", "has no secret, but this node has one",
       "it has a secret, or is no drun, and this job has none"},
  }));
  INFO(stranger.words);
  JoinSpec coordinator;
  if (stranger.jobs) coordinator.secret = test_secret(*stranger.jobs);
  TestCluster cluster(3, coordinator);
  cluster.add(0);
  cluster.add(1);
  REQUIRE(cluster.until([&] { return cluster.log.has("2 of 3 nodes"); }));
  JoinSpec spec = join_spec(2, 3, cluster.port());
  spec.run_id = stranger.run_id;
  if (stranger.own) spec.secret = test_secret(*stranger.own);
  TestAgent agent(cluster.io, spec);
  const auto began = std::chrono::steady_clock::now();
  agent.client.start();
  REQUIRE(cluster.until([&] { return agent.outcome.has_value(); }));
  CHECK(std::chrono::steady_clock::now() - began < test::scaled(5s));  // it does not retry
  CHECK_THAT(agent.error(), ContainsSubstring(stranger.words));
  CHECK(std::get<NotRun>(agent.outcome->ending).error.code == ErrorCode::Refused);
  REQUIRE(cluster.until([&] { return cluster.log.has(stranger.log_words); }));
  CHECK_FALSE(cluster.agents[0]->outcome);
  cluster.add(2);
  REQUIRE(cluster.until_round(0));
  CHECK(cluster.agents[1]->world->world_size == 6);
}

TEST_CASE(
    "a node 0 that finds another coordinator at its address reports it, whatever its secret") {
  const std::string own = GENERATE("0123456789abcdef", "fedcba9876543210");
  TestCluster cluster(2, with_secret());
  cluster.add(0);
  REQUIRE(cluster.until([&] { return cluster.log.has("node 0 (host0) joined"); }));
  const auto tls = rendezvous::TlsContext::make(test_secret(own), "edge");
  REQUIRE(tls);
  rendezvous::CoordinatorProbe probe(cluster.io);
  const rendezvous::Hello hello{
      .run_id = "edge", .node_rank = 0, .node_count = 2, .role = "", .host = "b"};
  std::optional<Error> objection;
  probe.start(
      {"127.0.0.1", cluster.port()}, hello, *tls,
      [&objection](const Error& error) { objection = error; },
      rendezvous::Connector::OwnAddresses::Connect);
  REQUIRE(cluster.until([&] { return objection.has_value(); }));
  CHECK_THAT(objection->message,
             ContainsSubstring(own == "0123456789abcdef" ? "node rank 0 is taken by host host0"
                                                         : "has another secret than this node"));
}

TEST_CASE("the store of a job with a secret serves this host") {
  TestCluster cluster(1, with_secret());
  cluster.add(0);
  REQUIRE(cluster.until_round(0));
  const RawSocket worker = RawSocket::connect_to(cluster.port());
  REQUIRE(worker.say(std::string("\x00\xCE\xF7\x85\x3C\x0D\x01\x02\x03\x04", 10)));
  REQUIRE(cluster.until([&] { return worker.has_something(0); }));
  CHECK(worker.hear(4) == "\x01\x02\x03\x04");
}

TEST_CASE("many connections that send nothing, little or nonsense do not block any node") {
  const bool has_secret = GENERATE(true, false);
  JoinSpec spec;
  if (has_secret) spec.secret = test_secret();
  TestCluster cluster(40, spec);
  std::mt19937 random(7);
  std::vector<RawSocket> crowd;
  const auto come = [&](int count) {
    for (int i = 0; i < count; ++i) {
      if (crowd.size() == 300) crowd.erase(crowd.begin(), crowd.begin() + 100);
      crowd.push_back(RawSocket::connect_to(cluster.port()));
      std::string bytes(random() % 300 + 6, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      switch (random() % 5) {
        case 0:
          continue;  // silent
        case 1:
          bytes = "dru";  // a slow client
          break;
        case 2:
          bytes = "\x16\x03\x01\x01";  // a slow TLS client
          break;
        case 3:
          bytes.replace(0, 3, "\x16\x03\x01");
          bytes[3] = '\0';
          bytes[4] = static_cast<char>(bytes.size() - 5);
          break;
        default:
          break;
      }
      crowd.back().say(bytes);
      cluster.io.poll();
    }
  };
  come(200);
  for (int node = 0; node < 40; ++node) {
    cluster.add(node);
    come(20);
  }
  REQUIRE(cluster.until_round(0));
  CHECK(cluster.log.lines.size() < 400);  // at most five a second, in addition to the nodes' lines
  for (auto& agent : cluster.agents) CHECK_FALSE(agent->outcome);
}

TEST_CASE("a connection without a hello is closed after the timeout, with TLS or without") {
  JoinSpec spec;
  spec.heartbeat_timeout = 300ms;
  const auto [has_secret, bytes] = GENERATE(table<bool, std::string>({
      {false, "dru"},
      {false, rendezvous::encode_preamble()},
      {true, "\x16\x03\x01"},
  }));
  if (has_secret) spec.secret = test_secret();
  TestCluster cluster(2, spec);
  const RawSocket slow = RawSocket::connect_to(cluster.port());
  REQUIRE(slow.say(bytes));
  REQUIRE(cluster.until([&] { return cluster.log.has("it did not say hello"); }));
}

}  // namespace drun::test

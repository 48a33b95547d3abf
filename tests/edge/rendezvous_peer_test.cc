// Tests peers, on either end of the connection, that are not a drun of this version.
#include "rendezvous/net/frame_reader.h"
#include "rendezvous/protocol/control_wire.h"
#include "tests/support/agents.h"
#include "tests/support/catch.h"

namespace drun::test {
namespace {

using asio::ip::tcp;
using namespace std::chrono_literals;

// Accepts connections, sends text or nothing, and keeps the connection open or closes it.
class Service {
 public:
  Service(asio::io_context& io, std::string words, bool closes)
      : acceptor_(io, {asio::ip::make_address("127.0.0.1"), 0}),
        words_(std::move(words)),
        closes_(closes) {
    accept();
  }
  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }
  int count() const { return count_; }

 private:
  void accept() {
    acceptor_.async_accept([this](const error_code& ec, tcp::socket socket) {
      if (ec) return;
      ++count_;
      asio::write(socket, asio::buffer(words_));
      if (!closes_) open_.push_back(std::move(socket));
      accept();
    });
  }

  tcp::acceptor acceptor_;
  std::string words_;
  bool closes_;
  int count_ = 0;
  std::vector<tcp::socket> open_;
};

std::string outcome_at(const std::string& words, bool closes, int* tries = nullptr) {
  asio::io_context io(1);
  Service service(io, words, closes);
  JoinSpec spec = join_spec(1, 2, service.port());
  spec.heartbeat_timeout = 300ms;
  spec.join_timeout = 2s;
  TestAgent agent(io, spec);
  agent.client.start();
  REQUIRE(run_until(io, [&] { return agent.outcome.has_value(); }));
  if (tries != nullptr) *tries = service.count();
  CHECK_THAT(agent.error(), ContainsSubstring("127.0.0.1:" + std::to_string(service.port())));
  return agent.error();
}

// Returns what the server answers to these bytes, until it closes the connection.
std::string answer_to(TestCluster& cluster, const std::string& bytes) {
  tcp::socket socket(cluster.io);
  socket.connect({asio::ip::make_address("127.0.0.1"), cluster.port()});
  asio::write(socket, asio::buffer(bytes));
  std::string answer;
  std::array<char, 1024> chunk{};
  bool has_ended = false;
  std::function<void()> read = [&] {
    socket.async_read_some(asio::buffer(chunk), [&](const error_code& ec, std::size_t size) {
      answer.append(chunk.data(), size);
      has_ended = bool(ec);
      if (!ec) read();
    });
  };
  read();
  CHECK(cluster.until([&] { return has_ended; }));
  return answer;
}

const std::string kOurs = "this drun speaks " + std::to_string(rendezvous::kControlVersion);

}  // namespace

TEST_CASE("a port of another program fails at once, and the error shows its first bytes") {
  int tries = 0;
  CHECK_THAT(outcome_at("HTTP/1.1 400 Bad Request\r\n", false, &tries),
             ContainsSubstring("is not a drun") &&
                 ContainsSubstring("\"HTTP/1.1 400 Bad Request\\x0D\\x0A\""));
  CHECK(tries == 1);
}

TEST_CASE("the error about a coordinator of another protocol version names both versions") {
  CHECK_THAT(outcome_at(rendezvous::encode_preamble(99), false),
             ContainsSubstring("control protocol 99, " + kOurs));
}

TEST_CASE(
    "a port that accepts and sends nothing is retried until the join timeout, then reported") {
  int tries = 0;
  CHECK_THAT(outcome_at("", false, &tries), ContainsSubstring("has not answered for 300ms"));
  CHECK(tries >= 2);
}

TEST_CASE("a port that closes connections is retried until the join timeout, then reported") {
  int tries = 0;
  CHECK_THAT(outcome_at("", true, &tries),
             ContainsSubstring("closes them without an answer") &&
                 ContainsSubstring("the coordinator is overloaded, or another program"));
  CHECK(tries >= 5);
}

TEST_CASE("a coordinator that closes connections after its preamble is reported as overloaded") {
  CHECK_THAT(outcome_at(rendezvous::encode_preamble(), true),
             ContainsSubstring("the coordinator is overloaded or about to end"));
}

TEST_CASE("a coordinator that sends nonsense after its preamble is reported") {
  CHECK_THAT(
      outcome_at(rendezvous::encode_preamble() + std::string("\x01\x00\x00\x00\xFF", 5), false),
      ContainsSubstring("broke the control protocol"));
}

TEST_CASE("a member of another protocol version gets the coordinator's version and is logged") {
  TestCluster cluster(1);
  CHECK(answer_to(cluster, rendezvous::encode_preamble(99)) == rendezvous::encode_preamble());
  CHECK(cluster.log.has("speaks drun's control protocol 99, " + kOurs));
}

TEST_CASE("invalid bytes close only their connection, with a line in the log") {
  const auto [bytes, words] = GENERATE(table<std::string, std::string>({
      {"dialogue", "is not a drun"},
      {rendezvous::encode_preamble() + std::string(4, '\xFF'), "a frame of 4294967295 bytes"},
      {rendezvous::encode_preamble() + std::string("\x01\x00\x00\x00\x77", 5), "malformed message"},
      {rendezvous::encode_preamble() +
           rendezvous::encode(rendezvous::MemberMessage(rendezvous::Ping{})),
       "did not begin with hello"},
  }));
  TestCluster cluster(1);
  answer_to(cluster, bytes);
  CHECK(cluster.log.has(words));
  cluster.add(0);
  CHECK(cluster.until_round(0));
}

TEST_CASE("a rejection arrives even if unread bytes follow the hello") {
  TestCluster cluster(1);
  rendezvous::Hello hello{.run_id = "other", .node_rank = 0, .role = "", .host = "h"};
  const std::string answer =
      answer_to(cluster, rendezvous::encode_preamble() +
                             rendezvous::encode(rendezvous::MemberMessage(hello)) +
                             std::string(100'000, 'x'));
  CHECK_THAT(answer, ContainsSubstring("belongs to run id \"other\""));
}

TEST_CASE("a member that sends nothing is reported as lost") {
  JoinSpec spec;
  spec.heartbeat_timeout = 2s;  // a quarter of it is well above the delays on a busy machine
  TestCluster cluster(2, spec);
  cluster.add(0);
  tcp::socket silent(cluster.io);
  silent.connect({asio::ip::make_address("127.0.0.1"), cluster.port()});
  rendezvous::Hello hello{
      .run_id = "edge", .node_rank = 1, .node_count = 2, .role = "", .host = "mute"};
  asio::write(silent, asio::buffer(rendezvous::encode_preamble() +
                                   rendezvous::encode(rendezvous::MemberMessage(hello))));
  REQUIRE(cluster.until_round(0));
  REQUIRE(cluster.until_all_ended());
  CHECK(cluster.agents[0]->outcome->ending ==
        Ending(NodeLost{1, "mute", false, "no sign of life for 2s"}));
}

}  // namespace drun::test

// Tests the gateway to etcd, against misbehaving servers and against a real etcd.
#include <sys/wait.h>

#include <thread>

#include "rendezvous/leader/etcd_gateway.h"
#include "tests/support/catch.h"
#include "tests/support/etcd_server.h"
#include "tests/support/event_loop.h"
#include "tests/support/machine.h"
#include "tests/support/raw_socket.h"

namespace drun::rendezvous::etcd {
namespace {

using namespace std::chrono_literals;
using testing::EtcdServer;

const Keys kKeys{"/drun/edge/leader", "/drun/edge/state"};

struct Way {
  explicit Way(std::vector<Endpoint> endpoints, std::shared_ptr<HttpTls> tls = nullptr)
      : gateway(io, std::move(endpoints), kKeys, std::move(tls)) {}

  std::variant<Answer, Failed> ask(const Call& call, std::chrono::milliseconds limit = 5s) {
    std::optional<std::variant<Answer, Failed>> result;
    gateway.ask(call, limit, [&result](const auto& told) { result = told; });
    REQUIRE(test::run_until(io, [&result] { return result.has_value(); }));
    return *result;
  }
  std::string reason(const Call& call, std::chrono::milliseconds limit = 5s) {
    const auto result = ask(call, limit);
    REQUIRE(std::holds_alternative<Failed>(result));
    CHECK_FALSE(std::get<Failed>(result).is_refused);
    return std::get<Failed>(result).reason;
  }
  template <typename T>
  T answer(const Call& call) {
    const auto result = ask(call);
    INFO((std::holds_alternative<Failed>(result) ? std::get<Failed>(result).reason : ""));
    REQUIRE(std::holds_alternative<Answer>(result));
    return std::get<T>(std::get<Answer>(result));
  }

  asio::io_context io{1};
  Gateway gateway;
};

Endpoint local(int port) { return {"127.0.0.1", static_cast<std::uint16_t>(port)}; }

// Answers each connection's first request with `text`, then closes it.
class Parrot {
 public:
  explicit Parrot(std::string text)
      : listening_(RawSocket::listening()), port_(listening_.port()), thread_([this, text] {
          for (;;) {
            const RawSocket one = listening_.accept_one();
            if (!one.is_open() || is_over_) return;
            char request[4096];
            if (recv(one.fd(), request, sizeof request, 0) <= 0) continue;
            std::string_view left = text;
            while (!left.empty()) {
              const ssize_t sent = send(one.fd(), left.data(), left.size(), MSG_NOSIGNAL);
              if (sent <= 0) break;
              left.remove_prefix(static_cast<std::size_t>(sent));
            }
          }
        }) {}
  ~Parrot() {
    is_over_ = true;
    const RawSocket last = RawSocket::connect_to(port_);
    thread_.join();
  }
  int port() const { return port_; }

 private:
  RawSocket listening_;
  std::uint16_t port_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

std::string http(const std::string& body, const std::string& head = "200 OK") {
  return "HTTP/1.1 " + head + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body;
}

// Makes every call that a leader makes.
void check_calls(Way& way) {
  const Leased lease = way.answer<Leased>(Grant{30s});
  CHECK(lease.ttl == 30s);
  CHECK(way.answer<Leased>(Renew{lease.lease}) == lease);
  CHECK(way.answer<Leased>(Renew{lease.lease + 1}).ttl == 0s);
  CHECK_FALSE(way.answer<Seen>(Look{}).sight.leader);
  const Claim claim{"me", lease.lease, "so", lease.lease, 0};
  const Seen won = way.answer<Seen>(claim);
  CHECK(won.is_done);
  REQUIRE(won.sight.leader);
  CHECK(won.sight.leader->value == "me");
  CHECK(won.sight.leader->lease == lease.lease);
  REQUIRE(won.sight.state);
  const Seen second = way.answer<Seen>(claim);
  CHECK_FALSE(second.is_done);
  CHECK(second.sight.leader == won.sight.leader);
  const Revision led_since = won.sight.leader->created;
  const Revision changed = won.sight.state->changed;
  const Seen stored = way.answer<Seen>(Store{led_since, "new", lease.lease, changed});
  CHECK(stored.is_done);
  REQUIRE(stored.sight.state);
  CHECK(stored.sight.state->value == "new");
  CHECK_FALSE(way.answer<Seen>(Store{led_since, "late", lease.lease, changed}).is_done);
  CHECK_FALSE(way.answer<Seen>(Clear{led_since + 1}).is_done);
  const Seen cleared = way.answer<Seen>(Clear{led_since});
  CHECK(cleared.is_done);
  CHECK_FALSE(cleared.sight.leader);
  CHECK_FALSE(cleared.sight.state);
  CHECK(way.answer<Seen>(claim).is_done);
  static_cast<void>(way.answer<Revoked>(Revoke{lease.lease}));
  CHECK_FALSE(way.answer<Seen>(Look{}).sight.leader);
  const auto gone = way.ask(claim);
  REQUIRE(std::holds_alternative<Failed>(gone));
  CHECK(std::get<Failed>(gone).is_refused);
}

bool make_certificates(const std::string& directory) {
  const std::string script =
      "cd " + directory +
      " && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
      "-subj /CN=ca -keyout ca.key -out ca.pem && "
      "for who in server client; do "
      "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=$who "
      "-keyout $who.key -out $who.csr && "
      "printf 'subjectAltName=IP:127.0.0.1\\nextendedKeyUsage=serverAuth,clientAuth\\n' > ext && "
      "openssl x509 -req -in $who.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 "
      "-extfile ext -out $who.pem || exit 1; done";
  return testing::run({.argv = {"sh", "-c", script}}).code == 0;
}

bool is_skipped(const EtcdServer& etcd) {
  if (etcd.why_not().empty()) return false;
  WARN("skipped: " + etcd.why_not());
  return true;
}

}  // namespace

TEST_CASE("a real etcd supports every call that drun makes") {
  const EtcdServer etcd;
  if (is_skipped(etcd)) return;
  Way way({local(etcd.port())});
  check_calls(way);
}

TEST_CASE("the gateway uses TLS with certificates on both sides") {
  const testing::TemporaryDirectory directory;
  if (!make_certificates(directory.path())) {
    WARN("skipped: there is no openssl here");
    return;
  }
  const EtcdServer etcd(
      {"--cert-file", directory.file("server.pem"), "--key-file", directory.file("server.key"),
       "--client-cert-auth", "--trusted-ca-file", directory.file("ca.pem")},
      "https");
  if (is_skipped(etcd)) return;
  const CertificateFiles all{directory.file("client.pem"), directory.file("client.key"),
                             directory.file("ca.pem")};
  const auto tls = HttpTls::make(all);
  REQUIRE(tls);
  Way way({local(etcd.port())}, *tls);
  check_calls(way);

  // The gateway does not trust etcd, etcd does not trust the gateway, the gateway does not use TLS.
  CertificateFiles files = all;
  files.authorities.clear();
  const auto doubting = HttpTls::make(files);
  REQUIRE(doubting);
  CHECK_THAT(Way({local(etcd.port())}, *doubting).reason(Look{}), ContainsSubstring("verify"));
  const auto unknown = HttpTls::make({"", "", all.authorities});
  REQUIRE(unknown);
  CHECK_FALSE(Way({local(etcd.port())}, *unknown).reason(Look{}).empty());
  CHECK_FALSE(Way({local(etcd.port())}).reason(Look{}).empty());
  // The server's certificate is valid for 127.0.0.1 only.
  CHECK_THAT(Way({{"localhost", static_cast<std::uint16_t>(etcd.port())}}, *tls).reason(Look{}),
             ContainsSubstring("verify"));
}

TEST_CASE("an error about unusable certificates names the file and the reason") {
  const testing::TemporaryDirectory directory;
  testing::write_file(directory.file("rubbish.pem"), "not a certificate");
  const auto rubbish = HttpTls::make({"", "", directory.file("rubbish.pem")});
  REQUIRE_FALSE(rubbish);
  CHECK(rubbish.error().code == ErrorCode::Usage);
  CHECK_THAT(rubbish.error().message, ContainsSubstring("cacert=" + directory.file("rubbish.pem")));
  const auto missing = HttpTls::make({directory.file("none.pem"), directory.file("none.key"), ""});
  REQUIRE_FALSE(missing);
  CHECK_THAT(missing.error().message, ContainsSubstring("cert="));
}

TEST_CASE("after a call to an unreachable endpoint fails, the next endpoint is used") {
  const EtcdServer etcd;
  if (is_skipped(etcd)) return;
  const int nobody = testing::free_port();
  Way way({local(nobody), local(etcd.port())});
  CHECK_THAT(way.reason(Look{}), ContainsSubstring("127.0.0.1:" + std::to_string(nobody)) &&
                                     ContainsSubstring("refused"));
  CHECK_FALSE(way.answer<Seen>(Look{}).sight.leader);
  CHECK_FALSE(way.answer<Seen>(Look{}).sight.leader);
}

TEST_CASE("the gateway reconnects to a restarted etcd") {
  EtcdServer etcd;
  if (is_skipped(etcd)) return;
  Way way({local(etcd.port())});
  const Leased lease = way.answer<Leased>(Grant{60s});
  CHECK(way.answer<Seen>(Claim{"me", lease.lease, "so", lease.lease, 0}).is_done);
  etcd.kill();
  CHECK_FALSE(way.reason(Look{}).empty());
  etcd.start();
  REQUIRE(testing::eventually([&etcd] { return etcd.listens(); }, 20s));
  std::variant<Answer, Failed> seen;
  REQUIRE(testing::eventually(
      [&] {
        seen = way.ask(Look{});
        return std::holds_alternative<Answer>(seen);
      },
      20s));
  REQUIRE(std::get<Seen>(std::get<Answer>(seen)).sight.leader);
  CHECK(way.answer<Leased>(Renew{lease.lease}).ttl == 60s);
}

TEST_CASE("a watch of a real etcd reports each change of the leader's key, and the watch's end") {
  EtcdServer etcd;
  if (is_skipped(etcd)) return;
  Way way({local(etcd.port())});
  std::vector<std::variant<WatchMessage, Failed>> heard;
  const Revision before = way.answer<Seen>(Look{}).sight.revision;
  way.gateway.watch(before + 1, [&heard](const auto& message) { heard.push_back(message); });
  const auto hears = [&](std::size_t count) {
    return test::run_until(way.io, [&] { return heard.size() >= count; });
  };
  REQUIRE(hears(1));
  CHECK_FALSE(std::get<WatchMessage>(heard[0]).is_change);
  const Leased lease = way.answer<Leased>(Grant{30s});
  const Seen won = way.answer<Seen>(Claim{"me", lease.lease, "so", lease.lease, 0});
  REQUIRE(hears(2));
  CHECK(std::get<WatchMessage>(heard[1]) ==
        WatchMessage{won.sight.leader->changed, true, won.sight.leader});
  // A watch also reports changes from before it started.
  std::vector<std::variant<WatchMessage, Failed>> late;
  Way second({local(etcd.port())});
  second.gateway.watch(before + 1, [&late](const auto& message) { late.push_back(message); });
  REQUIRE(test::run_until(second.io, [&] { return late.size() >= 2; }));
  CHECK(std::get<WatchMessage>(late[1]) == std::get<WatchMessage>(heard[1]));
  second.gateway.stop_watching();
  static_cast<void>(way.answer<Revoked>(Revoke{lease.lease}));
  REQUIRE(hears(3));
  CHECK(std::get<WatchMessage>(heard[2]).is_change);
  CHECK_FALSE(std::get<WatchMessage>(heard[2]).leader);
  etcd.kill();
  REQUIRE(hears(4));
  CHECK_THAT(std::get<Failed>(heard[3]).reason,
             ContainsSubstring("127.0.0.1:" + std::to_string(etcd.port())));
  CHECK(late.size() == 2);
}

TEST_CASE("a watch of a server that is not etcd ends with the reason") {
  const auto [answer, reason] = GENERATE(table<std::string, std::string>({
      {http("404 page not found\n", "404 Not Found"), "HTTP status 404"},
      {http("{}\n"), "does not answer as etcd"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n200000\r\n" +
           std::string(0x200000, ' ') + "\r\n0\r\n\r\n",
       "over 1 MiB"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "ended its answer"},
      {"", "closed the connection without an answer"},
  }));
  const Parrot parrot(answer);
  Way way({local(parrot.port())});
  std::optional<std::variant<WatchMessage, Failed>> heard;
  way.gateway.watch(1, [&heard](const auto& message) { heard = message; });
  REQUIRE(test::run_until(way.io, [&] { return heard.has_value(); }));
  REQUIRE(std::holds_alternative<Failed>(*heard));
  CHECK_THAT(std::get<Failed>(*heard).reason, ContainsSubstring(reason));
}

TEST_CASE("a call to a server that is not etcd fails with the reason") {
  const auto [said, reason] = GENERATE(table<std::string, std::string>({
      {http("<html>"), "does not answer as etcd"},
      {http("404 page not found\n", "404 Not Found"), "HTTP status 404"},
      {http("{}"), "does not answer as etcd"},
      {"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP"},
      {"", "closed the connection without an answer"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "closed the connection without"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{", "body limit"},
      {http(std::string(2 << 20, ' ')), "body limit"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n200000\r\n" +
           std::string(0x200000, ' ') + "\r\n0\r\n\r\n",
       "body limit"},
      {"HTTP/1.1 200 OK\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n", "header"},
  }));
  const Parrot parrot(said);
  for (int i = 0; i < 3; ++i)
    CHECK_THAT(Way({local(parrot.port())}).reason(Look{}), ContainsSubstring(reason));
}

TEST_CASE("a call to a server that accepts and sends nothing times out") {
  const RawSocket silent = RawSocket::listening();
  const auto began = std::chrono::steady_clock::now();
  Way way({local(silent.port())});
  CHECK_THAT(way.reason(Look{}, 200ms), ContainsSubstring("has not answered within 200ms"));
  CHECK(std::chrono::steady_clock::now() - began < test::scaled(3s));
  // A new call cancels the pending one.
  bool was_called = false;
  way.gateway.ask(Look{}, 50ms, [&was_called](const auto&) { was_called = true; });
  CHECK_THAT(way.reason(Look{}, 200ms), ContainsSubstring("has not answered"));
  CHECK_FALSE(was_called);
}

}  // namespace drun::rendezvous::etcd

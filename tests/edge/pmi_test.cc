#include "launcher/engines/pmi.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <thread>

#include "rendezvous/base/unique_fd.h"
#include "tests/support/catch.h"

namespace drun::engines {
namespace {

using namespace std::chrono_literals;

// An engine's end of PMI_FD. It answers one line after the other and records the requests.
class Server {
 public:
  explicit Server(std::vector<std::string> answers) {
    std::array<int, 2> ends{};
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
    client_ = UniqueFd(ends[0]);
    serving_ = std::thread([this, fd = UniqueFd(ends[1]), answers = std::move(answers)] {
      for (const std::string& answer : answers) {
        std::string line;
        char byte = 0;
        while (recv(fd.get(), &byte, 1, 0) == 1 && byte != '\n') line += byte;
        asked += line + "|";
        // In two pieces, because a line can arrive in pieces.
        send(fd.get(), answer.data(), answer.size() / 2, MSG_NOSIGNAL);
        const std::string_view rest = std::string_view(answer).substr(answer.size() / 2);
        send(fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
      }
    });
  }
  ~Server() { join(); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int fd() const { return client_.get(); }
  void join() {
    if (serving_.joinable()) serving_.join();
  }

  std::string asked;  // valid after join()

 private:
  UniqueFd client_;
  std::thread serving_;
};

const std::string kInit = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
const std::string kSpace = "cmd=my_kvsname kvsname=kvs_7\n";
const std::string kPut = "cmd=put_result rc=0 msg=success\n";
const std::string kBarrier = "cmd=barrier_out\n";
const std::string kGot = "cmd=get_result rc=0 msg=success value=gpu0/abc\n";
const std::string kFarewell = "cmd=finalize_ack\n";

std::string message_of(std::vector<std::string> answers) {
  Server server(std::move(answers));
  const auto met = meet_by_pmi(server.fd(), std::nullopt, 10s);
  return met ? "" : met.error().message;
}

}  // namespace

TEST_CASE("over PMI rank 0 publishes its text, and every rank gets it after the barrier") {
  const bool is_first = GENERATE(true, false);
  Server server(is_first ? std::vector{kInit, kSpace, kPut, kBarrier, kGot, kFarewell}
                         : std::vector{kInit, kSpace, kBarrier, kGot, kFarewell});
  const auto told = is_first ? std::optional<std::string>("gpu0/abc") : std::nullopt;
  const auto met = meet_by_pmi(server.fd(), told, 10s);
  REQUIRE(met);
  CHECK(*met == "gpu0/abc");
  server.join();
  const std::string put = is_first ? "cmd=put kvsname=kvs_7 key=drun-node-0 value=gpu0/abc|" : "";
  CHECK(server.asked == "cmd=init pmi_version=1 pmi_subversion=1|cmd=get_my_kvsname|" + put +
                            "cmd=barrier_in|cmd=get kvsname=kvs_7 key=drun-node-0|cmd=finalize|");
  CHECK((fcntl(server.fd(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("a PMI server that sends a wrong answer, none, or closes is an error with the reason") {
  CHECK_THAT(message_of({"cmd=response_to_init rc=-1\n"}), ContainsSubstring("rc=-1"));
  CHECK_THAT(message_of({kInit, "hello\n"}), ContainsSubstring("\"hello\" is the answer to"));
  CHECK_THAT(message_of({kInit, kSpace, kBarrier, "cmd=get_result rc=-1 msg=no\n"}),
             ContainsSubstring("msg=no"));
  CHECK_THAT(message_of({kInit, kSpace}), ContainsSubstring("PMI_FD"));  // the server has closed
                                                                         // its end
  CHECK_THAT(message_of({std::string(8000, 'x')}), ContainsSubstring("without an end"));

  std::array<int, 2> ends{};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
  const UniqueFd silent(ends[1]);
  const UniqueFd mine(ends[0]);
  const auto met = meet_by_pmi(mine.get(), std::nullopt, 20ms);
  REQUIRE_FALSE(met);
  CHECK(met.error().code == ErrorCode::Timeout);
}

}  // namespace drun::engines

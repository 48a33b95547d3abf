#include "agent/hang/flight_requests.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/event_loop.h"
#include "tests/support/flight_dumps.h"
#include "tests/support/process.h"

namespace drun::agent {
namespace {

using namespace std::chrono_literals;

std::string value_of(const std::vector<EnvironmentEntry>& own, std::string_view name) {
  for (const auto& [each, value] : own)
    if (each == name) return value;
  return "";
}

AgentSpec spec_with(std::vector<EnvironmentEntry> environment = {}) {
  AgentSpec spec;
  spec.hang_timeout = 3s;
  spec.worker.environment = std::move(environment);
  return spec;
}

World two_workers() {
  World world;
  world.base_rank = 4;
  world.local_world_size = 2;
  return world;
}

// The part of ProcessGroupNCCL that waits for a request: what it reads from the pipe starts a dump.
class PipeStandIn {
 public:
  PipeStandIn(const std::string& stem, std::string file, std::string dump)
      : path_(stem + ".pipe"), file_(std::move(file)), dump_(std::move(dump)) {
    REQUIRE(::mkfifo(path_.c_str(), 0666) == 0);
    pipe_ = UniqueFd(::open(path_.c_str(), O_RDONLY | O_NONBLOCK));
    REQUIRE(pipe_);
    thread_ = std::thread([this] { serve(); });
  }
  ~PipeStandIn() {
    is_over_ = true;
    thread_.join();
  }

 private:
  void serve() {
    char byte = 0;
    while (!is_over_ && ::read(pipe_.get(), &byte, 1) <= 0) std::this_thread::sleep_for(5ms);
    if (is_over_) return;
    // In parts, as a large dump arrives.
    const UniqueFd file(::open(file_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    const std::size_t half = dump_.size() / 2;
    CHECK(::write(file.get(), dump_.data(), half) == static_cast<ssize_t>(half));
    std::this_thread::sleep_for(100ms);
    const std::string_view rest = std::string_view(dump_).substr(half);
    CHECK(::write(file.get(), rest.data(), rest.size()) == static_cast<ssize_t>(rest.size()));
  }

  std::string path_;
  std::string file_;
  std::string dump_;
  UniqueFd pipe_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

// torch's control server, for one request.
class ServerStandIn {
 public:
  ServerStandIn(const std::string& path, std::string answer) : answer_(std::move(answer)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    REQUIRE(path.size() < sizeof(address.sun_path));
    std::memcpy(address.sun_path, path.data(), path.size());
    socket_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
            0);
    REQUIRE(::listen(socket_.get(), 4) == 0);
    thread_ = std::thread([this] {
      const UniqueFd client(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      std::string request;
      char byte = 0;
      while (client && !request.ends_with("\r\n\r\n") && ::read(client.get(), &byte, 1) == 1)
        request += byte;
      request_ = request;
      if (client && !answer_.empty())
        (void)!::send(client.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL);
      // Keeps the connection, as the server of torch does.
      while (client && ::read(client.get(), &byte, 1) > 0) {
      }
    });
  }
  ~ServerStandIn() {
    ::shutdown(socket_.get(), SHUT_RDWR);
    thread_.join();
  }
  const std::string& request() const { return request_; }

 private:
  std::string answer_;
  std::string request_;
  UniqueFd socket_;
  std::thread thread_;
};

std::string dump_bytes() {
  const auto bytes = bytes_of_base64(test::kRealDesync0);
  REQUIRE(bytes.has_value());
  return *bytes;
}

std::string json_answer() {
  const std::string body =
      R"({"entries":[{"collective_seq_id":7,"profiling_name":"gloo:broadcast","input_sizes":[[4]],)"
      R"("output_sizes":[[4]],"input_dtypes":["Float"],"process_group":["0","default_pg"],)"
      R"("state":"scheduled","retired":false}]})";
  return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

struct Rig {
  explicit Rig(AgentSpec with = spec_with()) : spec(std::move(with)) {
    REQUIRE(requests.prepare(two_workers()).has_value());
  }
  std::vector<std::optional<FlightDump>> ask() {
    std::optional<std::vector<std::optional<FlightDump>>> found;
    requests.ask([&](const auto& dumps) { found = dumps; });
    io.restart();
    REQUIRE(test::run_until(io, [&] { return found.has_value(); }));
    return *found;
  }

  asio::io_context io{1};
  AgentSpec spec;
  FlightRequests requests{io, Log(), spec};
};

}  // namespace

TEST_CASE("workers are told where to write dumps, unless the user has") {
  Rig rig;
  const auto own = rig.requests.environment(1);
  CHECK(own.size() == 3);
  CHECK(value_of(own, "TORCH_WORKER_SERVER_SOCKET").ends_with("/0_1.sock"));
  CHECK(value_of(own, "TORCH_FR_DUMP_TEMP_FILE").ends_with("/0_"));

  Rig users(spec_with({{"TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "/tmp/mine_"},
                       {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "/tmp/pipe_"},
                       {"TORCH_WORKER_SERVER_SOCKET", "/tmp/socket"}}));
  CHECK(users.requests.environment(0).empty());

  asio::io_context io(1);
  FlightRequests off(io, Log(), AgentSpec());
  REQUIRE(off.prepare(two_workers()).has_value());
  CHECK(off.environment(0).empty());
}

TEST_CASE("a dump is requested by the pipe and read from the file once it is whole") {
  Rig rig;
  const std::string stem = value_of(rig.requests.environment(0), "TORCH_FR_DUMP_TEMP_FILE") + "5";
  testing::write_file(stem, "of before");
  const PipeStandIn worker(
      value_of(rig.requests.environment(0), "TORCH_NCCL_DEBUG_INFO_PIPE_FILE") + "5", stem,
      dump_bytes());
  const auto dumps = rig.ask();
  REQUIRE(dumps.size() == 2);
  CHECK_FALSE(dumps[0].has_value());
  REQUIRE(dumps[1].has_value());
  CHECK(dumps[1]->rank == 5);
  CHECK(dumps[1]->calls.size() == 3);
}

TEST_CASE("a dump is requested from the control server") {
  Rig rig;
  const ServerStandIn server(value_of(rig.requests.environment(0), "TORCH_WORKER_SERVER_SOCKET"),
                             json_answer());
  const auto dumps = rig.ask();
  REQUIRE(dumps.size() == 2);
  REQUIRE(dumps[0].has_value());
  CHECK(dumps[0]->calls.at(0).op == "broadcast");
  CHECK(server.request().starts_with("POST /handler/fr_trace_json HTTP/1.1\r\n"));
}

TEST_CASE("without a pipe and a server nothing is waited for, and silent ones only for a moment") {
  Rig rig;
  const auto began = std::chrono::steady_clock::now();
  CHECK(rig.ask() == std::vector<std::optional<FlightDump>>(2));
  CHECK(std::chrono::steady_clock::now() - began < test::scaled(1s));
  const ServerStandIn silent(value_of(rig.requests.environment(0), "TORCH_WORKER_SERVER_SOCKET"),
                             "");
  CHECK(rig.ask() == std::vector<std::optional<FlightDump>>(2));
  CHECK(std::chrono::steady_clock::now() - began >= 2s);
}

TEST_CASE("answers that are no dump count as none") {
  for (const std::string answer :
       {"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "garbage",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "HTTP/1.1 200 OK\r\n\r\n"}) {
    Rig rig;
    const ServerStandIn server(value_of(rig.requests.environment(0), "TORCH_WORKER_SERVER_SOCKET"),
                               answer);
    CHECK_FALSE(rig.ask().at(0).has_value());
  }
}

TEST_CASE("the files of a round are removed") {
  std::string file;
  {
    Rig rig;
    file = value_of(rig.requests.environment(0), "TORCH_FR_DUMP_TEMP_FILE") + "4";
    testing::write_file(file, "x");
    REQUIRE(rig.requests.prepare(two_workers()).has_value());
    CHECK(::access(file.c_str(), F_OK) != 0);
    testing::write_file(file, "x");
  }
  CHECK(::access(file.substr(0, file.rfind('/')).c_str(), F_OK) != 0);
}

}  // namespace drun::agent

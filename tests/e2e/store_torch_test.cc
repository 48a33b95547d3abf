// Tests drun's client with the stores of Debian's PyTorch and of the one that DRUN_TORCH_PYTHON
// names. interop/store_process.py tests PyTorch's clients with drun's store.

#include <csignal>
#include <cstdlib>

#include "rendezvous/store/client.h"
#include "tests/support/catch.h"
#include "tests/support/places.h"
#include "tests/support/process.h"

namespace drun {
namespace {

using namespace std::chrono_literals;
using Keys = std::vector<std::string>;

constexpr int kSkipped = 77;
const std::string kScript = testing::source_file("tests/interop/torch_store.py");

const std::string kDebians = "/usr/bin/python3";

// Empty, with a printed reason, if there is none.
std::string current_python() {
  const char* path = std::getenv("DRUN_TORCH_PYTHON");
  if (path != nullptr && *path != '\0') return path;
  WARN("skipped: DRUN_TORCH_PYTHON names no Python with a current torch");
  return "";
}

testing::Launch script(const std::string& interpreter, const Keys& arguments) {
  testing::Launch launch{.argv = {interpreter, "-u", kScript}};
  launch.argv.insert(launch.argv.end(), arguments.begin(), arguments.end());
  return launch;
}

// Prints the reason if it is.
bool is_skipped(const std::string& interpreter, const testing::Ended& ended) {
  constexpr int kNoInterpreter = 127;
  if (ended.code != kSkipped && ended.code != kNoInterpreter) return false;
  WARN("skipped: " << interpreter << ": " << ended.out);
  return true;
}

template <typename T>
T must(Result<T> result) {
  INFO((result ? "" : result.error().message));
  REQUIRE(result.has_value());
  return *std::move(result);
}
void must(const Result<void>& result) {
  INFO((result ? "" : result.error().message));
  REQUIRE(result.has_value());
}

void exercise(StoreClient& client, StoreClient& other) {
  CHECK(must(client.announce()) > 0);
  must(client.set("key", "value"));
  CHECK(must(other.get("key")) == "value");
  CHECK(must(client.add("n", 5)) == 5);
  CHECK(must(other.add("n", -2)) == 3);
  CHECK(must(client.get("n")) == "3");
  CHECK(must(client.compare_set("c", "", "one")) == "one");
  CHECK(must(client.compare_set("c", "wrong", "two")) == "one");
  CHECK(must(client.compare_set("c", "one", "two")) == "two");
  CHECK(must(client.check(Keys{"key", "n"})));
  CHECK_FALSE(must(client.check(Keys{"key", "missing"})));
  const std::string big(4 << 20, 'b');
  must(client.set("big", big));
  CHECK(must(other.get("big")) == big);
  for (const auto timeout : {0ms, 30ms}) {
    client.set_timeout(timeout);
    CHECK(client.wait(Keys{"late"}).error().code == ErrorCode::Timeout);
    client.set_timeout(20s);
    CHECK(must(client.add("n", 1)) > 3);
  }
  must(other.set("late", "!"));
  CHECK(must(client.get("late")) == "!");
}

void check_server(const std::string& interpreter, const std::string& backend) {
  testing::Running server(script(interpreter, {"serve", backend}));
  if (!server.prints("\n", 60s) || server.out().starts_with("skipped")) {
    const testing::Ended ended = server.wait();
    INFO(ended.out << ended.err);
    CHECK(is_skipped(interpreter, ended));
    return;
  }
  INFO(server.out());
  const auto port = static_cast<std::uint16_t>(std::stoi(server.out()));
  const StoreClient::Options options{.endpoint = {.host = "127.0.0.1", .port = port},
                                     .timeout = 20s};
  StoreClient client = must(StoreClient::connect(options));
  StoreClient other = must(StoreClient::connect(options));
  exercise(client, other);
  server.signal(SIGTERM);
  CHECK(server.wait().code == 128 + SIGTERM);
}

}  // namespace

TEST_CASE("drun's client works with the store of Debian's PyTorch") {
  check_server(kDebians, "poll");
}

TEST_CASE("drun's client works with both stores of a current PyTorch") {
  const std::string interpreter = current_python();
  if (interpreter.empty()) return;
  const std::string backend = GENERATE("poll", "libuv");
  check_server(interpreter, backend);
}

}  // namespace drun

// Any answer from a store, or from another program in its place, gives an error with a reason, or
// values. After a malformed answer nothing more is read. The bytes come over a socket pair whose
// other end is closed for writing, so that nothing blocks.
//
// Input: the first byte selects the dialect, and each further one up to a 0xff an operation. The
// rest is the store's answer.
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/store/client.h"

namespace {

using namespace drun;
using std::chrono::milliseconds;

constexpr std::size_t kMostBytes = std::size_t{16} << 10;  // fits into the socket's buffer
constexpr milliseconds kLimit{10'000};

void require(bool is_true) {
  if (!is_true) std::abort();
}

template <typename Value>
bool is_good(const Result<Value>& result) {
  if (result) return true;
  require(!result.error().message.empty());
  // No operation can take long, and no server is searched for.
  require(result.error().code != ErrorCode::Timeout);
  require(result.error().code != ErrorCode::Unreachable);
  return false;
}

const std::vector<std::string> kKeys{"a", "b"};

// Returns false if the operation failed.
bool perform(StoreClient& client, unsigned char operation) {
  switch (operation % 6) {
    case 0:
      return is_good(client.get("a"));
    case 1:
      return is_good(client.add("a", 1));
    case 2:
      return is_good(client.compare_set("a", "x", "y"));
    case 3:
      return is_good(client.wait(kKeys));
    case 4:
      return is_good(client.check(kKeys));
    default:
      return is_good(client.announce());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size < 2 || size > kMostBytes) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view operations = input.substr(0, input.find('\xff'));
  const std::string_view answers = input.substr(std::min(operations.size() + 1, input.size()));
  std::array<int, 2> ends{};
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
  const UniqueFd server(ends[1]);
  const Dialect dialect = data[0] % 2 == 0 ? Dialect::Current : Dialect::Legacy;
  StoreClient client({"store", 29500},
                     {.stream = StoreStream(UniqueFd(ends[0])), .dialect = dialect}, kLimit);
  require(::send(server.get(), answers.data(), answers.size(), 0) ==
          static_cast<ssize_t>(answers.size()));
  require(::shutdown(server.get(), SHUT_WR) == 0);
  bool is_open = true;
  for (const char operation : operations.substr(0, 32)) {
    const bool is_done = perform(client, static_cast<unsigned char>(operation));
    // A failed operation closes the client.
    require(is_open || !is_done);
    is_open = is_done;
  }
  return 0;
}

#include "worker_lib/core/failure.h"

#include "tests/support/catch.h"

namespace drun::worker {
namespace {

Cause some_cause() {
  return Cause{.reporter = 3,
               .kind = WorkerError::Kind::PeerLost,
               .peer = 5,
               .operation = "barrier()",
               .message = "lost the connection to rank 5"};
}

}  // namespace

TEST_CASE("a cause is decoded as it was encoded") {
  Cause cause = some_cause();
  CHECK(decode_cause(encode(cause)) == cause);
  cause.peer.reset();
  CHECK(decode_cause(encode(cause)) == cause);
}

TEST_CASE("an encoded cause is shorter than four kilobytes") {
  Cause cause = some_cause();
  cause.operation.assign(100000, 'o');
  cause.message.assign(100000, 'm');
  const std::string bytes = encode(cause);
  CHECK(bytes.size() < 4096);
  REQUIRE(decode_cause(bytes));
  CHECK(decode_cause(bytes)->message.size() == 3072);
}

TEST_CASE("malformed bytes are not decoded as a cause") {
  const std::string good = encode(some_cause());
  for (std::size_t size = 0; size < good.size(); ++size) {
    CHECK_FALSE(decode_cause(good.substr(0, size)));
  }
  CHECK_FALSE(decode_cause(good + "x"));
  std::string bad_kind = good;
  bad_kind[0] = 99;
  CHECK_FALSE(decode_cause(bad_kind));
  std::string bad_reporter = good;
  bad_reporter[8] = '\xff';
  CHECK_FALSE(decode_cause(bad_reporter));
}

TEST_CASE("the text of a worker error consists of rank, operation and message") {
  const WorkerError error({.kind = WorkerError::Kind::Timeout,
                           .rank = 2,
                           .peer = 1,
                           .operation = "barrier()",
                           .message = "too late"});
  CHECK(std::string(error.what()) == "rank 2: barrier(): too late");
  CHECK(error.kind() == WorkerError::Kind::Timeout);
  CHECK(error.peer() == 1);
  CHECK(std::string(WorkerError({.message = "alone"}).what()) == "alone");
}

}  // namespace drun::worker

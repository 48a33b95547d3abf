#include "rendezvous/base/result.h"

#include <cerrno>

#include "tests/support/catch.h"

namespace drun {

TEST_CASE("a result holds a value or an error, and says which") {
  const Result<int> good = 3;
  const Result<int> bad = Error{ErrorCode::Timeout, "too late"};
  CHECK(good.has_value());
  CHECK(*good == 3);
  CHECK_FALSE(bad.has_value());
  CHECK(bad.error().message == "too late");
}

TEST_CASE("context is put before an error's message and keeps its code") {
  const Error error = with_context(Error{ErrorCode::Refused, "no"}, "cannot join");
  CHECK(error == Error{ErrorCode::Refused, "cannot join: no"});
}

TEST_CASE("a system error tells the deed and the system's words") {
  CHECK(system_error("open /x", ENOENT).message == "cannot open /x: no such file or directory");
  CHECK(system_error("bind port 1", EADDRINUSE).message ==
        "cannot bind port 1: address already in use");
}

}  // namespace drun

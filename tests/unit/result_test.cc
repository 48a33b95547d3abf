#include "rendezvous/base/result.h"

#include <cerrno>

#include "tests/support/catch.h"

namespace drun {

TEST_CASE("a result holds a value or an error") {
  const Result<int> good = 3;
  const Result<int> bad = Error{ErrorCode::Timeout, "too late"};
  CHECK(good.has_value());
  CHECK(*good == 3);
  CHECK_FALSE(bad.has_value());
  CHECK(bad.error().message == "too late");
}

TEST_CASE("context is prepended to the message and the code is kept") {
  const Error error = with_context(Error{ErrorCode::Refused, "no"}, "cannot join");
  CHECK(error == Error{ErrorCode::Refused, "cannot join: no"});
}

TEST_CASE("a system error contains the action and the system's message") {
  CHECK(system_error("open /x", ENOENT).message == "cannot open /x: no such file or directory");
  CHECK(system_error("bind port 1", EADDRINUSE).message ==
        "cannot bind port 1: address already in use");
}

}  // namespace drun

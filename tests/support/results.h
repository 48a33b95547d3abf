// Unwraps a Result: its value, or the message of its usage error. Anything else fails the test.
#pragma once

#include <string>
#include <utility>

#include "rendezvous/base/result.h"
#include "tests/support/catch.h"

namespace drun::test {

template <typename T>
T value_of(Result<T> result) {
  INFO((result ? "" : result.error().message));
  REQUIRE(result);
  return *std::move(result);
}

template <typename T>
std::string usage_error(const Result<T>& result) {
  REQUIRE_FALSE(result);
  CHECK(result.error().code == ErrorCode::Usage);
  return result.error().message;
}

}  // namespace drun::test

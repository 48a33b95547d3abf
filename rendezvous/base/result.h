// core. Result<T> holds a value or an Error. Its interface is a subset of std::expected's, so that
// std::expected can replace it. Overloaded combines lambdas into a visitor.
//
// There is one error code per kind of reaction in the caller. `message` gives the thing, the value,
// the reason and the remedy. Callers add context with `with_context`; the top level logs it once.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace drun {

enum class ErrorCode {
  Usage,  // the command line, a variable or a configuration file asks for something impossible
  Unreachable,   // a peer cannot be reached (yet): refused, unroutable, name not resolved
  Timeout,       // a deadline passed
  Closed,        // the peer or the job has ended
  Refused,       // the peer rejected the request, or is not drun
  Spawn,         // a program cannot be executed
  WorkerFailed,  // a worker failed
  System,        // a system call failed: bind, open, fork, memory
};

std::string_view to_string(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::System;
  std::string message;

  bool operator==(const Error&) const = default;
};

// Returns the error with the message "context: message".
Error with_context(Error error, std::string_view context);

// The system's error text in lower case, without the number; EADDRINUSE: "address in use".
std::string system_message(int error_number);

// Error{System, "cannot <operation>: <system message>"}, for EMFILE with the remedy; `operation` is
// a verb phrase: "open /tmp/x".
Error system_error(std::string_view operation, int error_number);

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : content_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool has_value() const { return content_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  // Calling value() without a value, or error() without an error, is a bug: asserted in all builds.
  T& value() & { return *std::get_if<0>(&check(0)); }
  const T& value() const& { return *std::get_if<0>(&check(0)); }
  T&& value() && { return std::move(*std::get_if<0>(&check(0))); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  Error& error() & { return *std::get_if<1>(&check(1)); }
  const Error& error() const& { return *std::get_if<1>(&check(1)); }
  Error&& error() && { return std::move(*std::get_if<1>(&check(1))); }

 private:
  std::variant<T, Error>& check(std::size_t index) {
    assert(content_.index() == index);
    return content_;
  }
  const std::variant<T, Error>& check(std::size_t index) const {
    assert(content_.index() == index);
    return content_;
  }

  std::variant<T, Error> content_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit

  bool has_value() const { return !error_; }
  explicit operator bool() const { return has_value(); }
  const Error& error() const {
    assert(error_);
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

// A visitor made of lambdas, one for each alternative of a variant. A missing case does not
// compile.

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
// clang before 17, which clang-tidy and the fuzz targets may be, does not deduce aggregates.
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

}  // namespace drun

// core. Parses one HTTP request from bytes as they arrive, and formats its answer. server.h has the
// socket. In the agent, only request.cc includes Beast.
//
// Limits:  a head of kMostRequestBytes, no body. Bytes after the request are ignored.
// Owner:   one connection.   Thread: any.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "agent/http/answers.h"

namespace drun::agent::web {

constexpr std::size_t kMostRequestBytes = std::size_t{8} << 10;

class RequestReader {
 public:
  enum class State { Incomplete, Complete, Malformed };

  RequestReader();
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  // Takes the next bytes of the connection. Complete and Malformed are final.
  State take(std::string_view bytes);

  // The next three require a complete request.
  std::string_view method() const;
  std::string_view target() const;
  // Uses the request's version of HTTP, omits the body for HEAD, and closes the connection.
  std::string response(const Answer& answer) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace drun::agent::web

// core. One HTTP request, read from bytes as they arrive, and the bytes of its answer. No socket in
// it: server.h has that. The one source that includes Beast.
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

  // The next bytes of the connection. Once Complete or Malformed it stays so.
  State take(std::string_view bytes);

  // The next three: of a request that is complete.
  std::string_view method() const;
  std::string_view target() const;
  // In the request's version of HTTP, without the body where a HEAD asks. It ends the connection.
  std::string response(const Answer& answer) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace drun::agent::web

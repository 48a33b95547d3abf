// edge. Answers the visitors of this node's probe (visits.h), on a separate thread.
//
// Limits:  256 visitors at a time, 10 s each; others are closed.
// Owner:   the probe; destruction closes all connections and ends the thread.
// Thread:  any for the calls here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "rendezvous/base/result.h"

namespace drun::probe {

class Host {
 public:
  // Listens at a free port on all addresses. Errors: System.
  static Result<std::unique_ptr<Host>> open(std::string token);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  std::uint16_t port() const;

 private:
  class Impl;
  explicit Host(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace drun::probe

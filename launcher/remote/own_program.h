// edge. This drun's own executable, for hosts that have none: its bytes and their SHA-256, read
// when the first host asks for it.
//
// Owner:   the starter, or a relay; before the sessions that use it.
// Thread:  the io_context's; reads and hashes on one of its own.
// Errors:  System, where it cannot be read, or OpenSSL is missing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "rendezvous/base/result.h"
#include "rendezvous/net/asio.h"

namespace drun::hosts {

struct ProgramCopy {
  std::string bytes{};
  std::string hash{};  // SHA-256, hexadecimal
};

class OwnProgram {
 public:
  using Copy = Result<std::shared_ptr<const ProgramCopy>>;
  using Done = std::function<void(const Copy&)>;

  explicit OwnProgram(asio::io_context& io);
  ~OwnProgram();
  OwnProgram(const OwnProgram&) = delete;
  OwnProgram& operator=(const OwnProgram&) = delete;

  // Called from the loop, in any case later.
  void get(Done done);

 private:
  struct State;
  asio::io_context& io_;
  std::shared_ptr<State> state_;
  std::thread reader_;
};

// As uname -m has it.
std::string own_machine();

}  // namespace drun::hosts

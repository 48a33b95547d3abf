// edge. The executable of this drun, to be copied to hosts that have none: its bytes and their
// SHA-256. Read in a thread when the first host asks for it. Must outlive the sessions.
// Errors:  System if it cannot be read or OpenSSL is missing.
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

  // Calls `done` from the event loop, never from within get().
  void get(Done done);

 private:
  struct State;
  asio::io_context& io_;
  std::shared_ptr<State> state_;
  std::thread reader_;
};

// As in uname -m.
std::string own_machine();

}  // namespace drun::hosts

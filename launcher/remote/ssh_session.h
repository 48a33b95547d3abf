// edge. One ssh to one host: the agent's input, the frames of its channel, and other output of the
// login, of ssh and of the agent's standard error.
//
// While the listener is held up nothing is read, which blocks ssh, the agent and its workers.
// start() does not wait for the exec. A host without drun asks for a copy
// (launcher/hosts/remote_command.h): until its agent answers, everything sent is kept, to be
// repeated after the copy. An ssh that cannot be started ends with code 127 or 126 and the reason.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/output/file_writer.h"
#include "agent/output/host_channel.h"
#include "agent/process/process.h"
#include "agent/spawn/program_starter.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/net/asio.h"

namespace drun::hosts {

// --- The executable of this drun, to be copied to hosts that have none: its bytes and their
// SHA-256
//
// Read in a thread (agent/output/file_writer.h) when the first host asks for it. Must outlive the
// sessions. Errors: System if it cannot be read or OpenSSL is missing.

struct ProgramCopy {
  std::string bytes{};
  std::string hash{};  // SHA-256, hexadecimal
};

class OwnProgram {
 public:
  using Copy = Result<std::shared_ptr<const ProgramCopy>>;
  using Done = std::function<void(const Copy&)>;

  OwnProgram(asio::io_context& io, const Log& log) : reader_(io, log, {}) {}

  // Calls `done` from the event loop, never from within get().
  void get(Done done);

 private:
  agent::FileWriter reader_;
  std::shared_ptr<std::optional<Copy>> copy_ = std::make_shared<std::optional<Copy>>();
};

// --- One ssh, and over it the connection to the agent of its host
//
// on_ended is called once, after all output has been passed on, and is the last callback.

struct SessionListener {
  std::function<void(const agent::Frame&)> on_frame;
  // Text outside the frames: output of the login, of ssh, of the agent's standard error. In pieces
  // of any size.
  std::function<void(bool is_stderr, std::string_view text)> on_stray;
  std::function<void()> on_copy{};   // drun is being copied to the host; may be empty
  std::function<bool()> is_held_up;  // reading stops while true; then call wake()
  // ssh's exit code. `reason`: why it ended, if on_stray has not shown it; may be empty.
  std::function<void(int code, const std::string& reason)> on_ended;
};

struct SshSpec {
  std::vector<std::string> argv{};
  std::optional<int> network_fd{};             // network namespace to start it in
  bool is_ssh = true;                          // false: the agent itself, on this machine
  std::span<const std::string> environment{};  // "NAME=value" lines; must outlive the session
  std::string name{};                          // of the host
  std::string first_line{};                    // first line of the agent's standard input
  std::string nonce{};                         // for the preamble of the agent's answer
};

// Shared by the sessions of one process; outlives them.
struct SshMeans {
  std::vector<char>& buffer;
  agent::ProgramStarter& launcher;
  OwnProgram& own_program;
};

class SshSession {
 public:
  SshSession(asio::io_context& io, const SshMeans& means, SshSpec spec, SessionListener listener);
  ~SshSession();
  SshSession(const SshSession&) = delete;
  SshSession& operator=(const SshSession&) = delete;

  void start();
  // Sends a line to the agent and adds the newline. Not allowed after let_go().
  void say(const std::string& line) { send(line + "\n"); }
  // Sends bytes unchanged.
  void send(std::string_view bytes);
  // Ends the agent's standard input.
  void let_go();
  void kill();
  // Reading may be possible again.
  void wake();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace drun::hosts

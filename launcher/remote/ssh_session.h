// edge. One ssh to one host, from its start to its end: what is sent to the agent there, the frames
// of its channel, and the text that the login, ssh and the agent's standard error have besides.
//
// Flow:    while the listener is held up nothing is read: that stops ssh, the agent and its
//          workers.
// Start:   its exec is not waited for. A host without drun asks for a copy (copy_words.h): until
//          its agent has spoken, what was sent to it is kept, to be sent again behind the copy.
// Owner:   the starter, or a relay.
// Thread:  the io_context's only.
// Errors:  an ssh that cannot be started ends with 127 or 126 and the reason.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/output/host_channel.h"
#include "agent/process/process.h"
#include "agent/process/program_starter.h"
#include "launcher/remote/own_program.h"
#include "rendezvous/net/asio.h"

// core. What the starter has of each host: a way to its agent and back, over an ssh of its own
// (ssh_session.h) or over that of another host (ssh_tree.h).
//
// Owner:   the starter, or a relay. on_ended comes once, after everything that was written has been
// handed
//          over; nothing comes after it.
// Thread:  the io_context's only.

namespace drun::hosts {

struct SessionListener {
  std::function<void(const agent::Frame&)> on_frame;
  // Text outside of frames: of the login, of ssh, of the agent's standard error. In any pieces.
  std::function<void(bool is_stderr, std::string_view text)> on_stray;
  std::function<bool()> is_held_up;  // nothing is read while it is true; wake() when it ends
  // ssh's exit code. `reason`: why it ended, where on_stray has not told; may be empty.
  std::function<void(int code, const std::string& reason)> on_ended;
};

class HostSession {
 public:
  virtual ~HostSession() = default;

  virtual void start() = 0;
  // A line for the agent; the newline is added. Nothing after let_go().
  void say(const std::string& line) { send(line + "\n"); }
  // The same for bytes, as they are.
  virtual void send(std::string_view bytes) = 0;
  // Ends the agent's standard input.
  virtual void let_go() = 0;
  virtual void kill() = 0;
  // What held up the reading may be over.
  virtual void wake() = 0;
};

}  // namespace drun::hosts

namespace drun::hosts {

struct SshSpec {
  std::vector<std::string> argv{};
  std::optional<int> network_fd{};             // the namespace that it is started in
  bool is_ssh = true;                          // else the agent itself, on this machine
  std::span<const std::string> environment{};  // "NAME=value" lines, of the session's life
  std::string name{};                          // of the host
  std::string first_line{};                    // for the agent's standard input
  std::string nonce{};                         // of the preamble that the agent answers with
};

// What the sessions of one process share; outlives them.
struct SshMeans {
  std::vector<char>& buffer;
  agent::ProgramStarter& starter;
  OwnProgram& own_program;
};

class SshSession final : public HostSession {
 public:
  using Listener = SessionListener;

  SshSession(asio::io_context& io, const SshMeans& means, SshSpec spec, Listener listener);
  ~SshSession() override;
  SshSession(const SshSession&) = delete;
  SshSession& operator=(const SshSession&) = delete;

  void start() override;
  void send(std::string_view bytes) override;
  void let_go() override;
  void kill() override;
  void wake() override;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace drun::hosts

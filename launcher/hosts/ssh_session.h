// edge. One ssh to one host, from its start to its end: what is sent to the agent there, the frames
// of its channel, and the text that the login, ssh and the agent's standard error have besides.
//
// Flow:    while the listener is held up nothing is read: that stops ssh, the agent and its
// workers. Owner:   the starter, or a relay. `buffer` outlives it. Thread:  the io_context's only.
// Errors: an ssh that cannot be started ends with 127 or 126 and
//          the reason.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/process.h"
#include "launcher/hosts/host_session.h"
#include "rendezvous/asio.h"

namespace drun::hosts {

struct SshSpec {
  std::vector<std::string> argv{};
  std::span<const std::string> environment{};  // "NAME=value" lines, of the session's life
  std::string name{};                          // of the host
  std::string first_line{};                    // for the agent's standard input
  std::string nonce{};                         // of the preamble that the agent answers with
};

class SshSession final : public HostSession {
 public:
  using Listener = SessionListener;

  SshSession(asio::io_context& io, std::vector<char>& buffer, SshSpec spec, Listener listener);
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

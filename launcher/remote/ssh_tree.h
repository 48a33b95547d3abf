// edge. The launcher's side of one branch of the login tree: one ssh to the relay on the branch's
// first host (relay.h), and a session over it for each host of the branch.
//
// If that ssh ends, the remaining sessions end too, and a single message lists them. Sessions must
// be destroyed before their branch.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "launcher/remote/agent_protocol.h"
#include "launcher/remote/ssh_session.h"

namespace drun::hosts {

class Branch {
 public:
  class Session;

  // `spec`: the ssh to the first host, without the first line. Of `listener` only on_stray (for
  // output of that ssh) and is_held_up are used.
  Branch(asio::io_context& io, const SshMeans& means, SshSpec spec, Log log,
         SessionListener listener);
  Branch(const Branch&) = delete;
  Branch& operator=(const Branch&) = delete;

  // The session of `host`; its start() begins it.
  std::unique_ptr<HostSession> session(std::size_t host, RelayStart start,
                                       SessionListener listener);

 private:
  void begin(std::size_t host, Session& session, const RelayStart& start);
  void send(const RelayCommand& command, std::string_view bytes);
  void kill(std::size_t host);
  void take(const agent::Frame& frame);
  void take_hello(const agent::Frame& frame);
  void take_end(int code, const std::string& reason);
  void forget(std::size_t host);

  std::string name_;
  Log log_;
  asio::steady_timer grace_;
  std::map<std::size_t, Session*> sessions_;  // begun and not ended
  std::set<std::size_t> killed_;
  bool has_started_ = false;
  bool is_let_go_ = false;
  std::function<void(bool is_stderr, std::string_view)> on_stray_;
  std::array<bool, 2> is_line_open_{};  // of ssh's output: [0 stdout, 1 stderr]
  SshSession ssh_;
};

}  // namespace drun::hosts

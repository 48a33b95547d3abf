// edge. The login tree (--ssh-tree): the launcher logs in to the first host of each branch, where a
// relay logs in to the others of the branch on its behalf (agent_protocol.h).
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

// --- The launcher's side of one branch: one ssh to the relay on the branch's first host, and a
// session over it for each host of the branch
//
// If that ssh ends, the remaining sessions end too, and a single message lists them. Sessions must
// be destroyed before their branch.

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

// --- The relay: a process on the first host of a branch
//
// Output of the sessions goes to the channel as Relayed frames; while the channel is blocked, the
// sessions are not read. When standard input ends, or is silent for agent::kLifelineSilence, the
// relay closes the sessions' inputs, and kills them after kEndGrace. If the relay is killed, it
// leaves no processes behind (agent/process/guardian.h).

struct RelayChannel {
  int fd = -1;  // close-on-exec
  std::string nonce{};
};

// `pending`: bytes of standard input that were read beyond the relay's first line. Returns the exit
// code. Forks: call it before other threads exist, and return its result from main.
int run_relay(const std::string& pending, const RelayChannel& channel);

}  // namespace drun::hosts

// edge. One ssh to one host, from its start to its end: what is said to the agent there, what comes
// back, and what ssh itself has to say.
//
// Flow:    workers' lines reach the consoles whole and in order; a console that is congested stops
//          the reading, and with it ssh, the agent and its workers. Until the agent
//          begins, the host's own words (a shell's greeting, ssh's complaints) are kept, at most
//          kMostWordsBytes; on stderr a mark of its own tells when, as the two have no common
//          order.
// Owner:   the starter, or a relay. The consoles and `buffer` outlive it.
// Thread:  the io_context's only.   Errors: an ssh that cannot be started ends with 127 or 126 and
//          the reason as its words.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/output/console.h"
#include "agent/process.h"
#include "launcher/hosts/host_session.h"
#include "rendezvous/asio.h"

namespace drun::hosts {

inline constexpr std::size_t kMostWordsBytes = std::size_t{8} << 10;

struct SshSpec {
  std::vector<std::string> argv{};
  std::span<const std::string> environment{};  // "NAME=value" lines, of the session's life
  std::string name{};                          // of the host, in front of its own words
  std::string first_line{};                    // for the agent's standard input
  std::uint64_t stream = 0;                    // three numbers from here on are this session's
};

struct SshConsoles {
  agent::Console& out;
  agent::Console& err;
};

class SshSession final : public HostSession {
 public:
  using Listener = SessionListener;

  SshSession(asio::io_context& io, std::vector<char>& buffer, SshConsoles consoles, SshSpec spec,
             Listener listener);
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

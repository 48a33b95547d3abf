// core. The messages between the starter and a relay: a process on the first host of a branch,
// which logs in to the hosts behind it and passes on what those and the starter send. It decides
// nothing. Hosts are named by their number in the job.
//
//   starter -> relay   "relay <protocol> <nonce>\n", then
//                      "start <host> <bytes>\n" and a RelayStart as JSON: begin that session
//                      "to <host> <bytes>\n" and those bytes, for its standard input
//                      "eof <host>\n"  "kill <host>\n"  and empty lines: the starter is there
//   relay -> starter   the channel (agent/host_channel.h): a Control frame with the relay's own
//                      Hello (hand_over.h), then Relayed frames
//
// Errors:  Refused, or absent. Never throws.   Owner: values.   Thread: any.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/hosts/hand_over.h"
#include "rendezvous/result.h"

namespace drun::hosts {

// A relay's first line, with the nonce of its channel's preamble.
std::string relay_line(std::string_view nonce);
struct RelayLine {
  int protocol = 0;
  std::string nonce{};  // empty in protocols that had none
  bool operator==(const RelayLine&) const = default;
};
// Absent: this is no relay's.
std::optional<RelayLine> parse_relay_line(std::string_view line);

struct RelayCommand {
  enum class Deed { Start, To, Eof, Kill };
  Deed deed = Deed::To;
  std::size_t host = 0;
  std::size_t bytes = 0;  // that follow
  bool operator==(const RelayCommand&) const = default;
};
std::string to_line(const RelayCommand& command);
std::optional<RelayCommand> parse_relay_command(std::string_view line);

struct RelayStart {
  std::vector<std::string> argv{};  // of its ssh; empty: the relay's own host, without one
  std::string name{};
  std::string first_line{};
  std::string nonce{};
  bool operator==(const RelayStart&) const = default;
};
std::string to_text(const RelayStart& start);
Result<RelayStart> parse_relay_start(std::string_view text);

// The payload of an Ended frame: the exit code of a session's ssh.
std::string ended_text(int code);
std::optional<int> parse_ended(std::string_view text);

}  // namespace drun::hosts

// core. What the starter and a relay say to each other: a relay is a process of the first host of a
// branch, which logs in to the hosts behind it, and passes on what those and the starter say. It
// decides nothing. Hosts are named by their number in the job.
//
//   starter -> relay   "relay <protocol>\n", then
//                      "start <host> <bytes>\n" and a RelayStart as JSON: begin that session
//                      "to <host> <bytes>\n" and those bytes, for its standard input
//                      "eof <host>\n"  "kill <host>\n"  and empty lines: the starter is there
//   relay -> starter   behind kMark: Hello (hand_over.h), its own; then
//                      "@<host> " and a marked line of that host, or "ended " and a RelayEnded;
//                      frames of lines with the host in their head; other hosts' text as it comes
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

// A relay's first line.
std::string relay_line();
// Its protocol. Absent: this is no relay's.
std::optional<int> parse_relay_line(std::string_view line);

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
  bool operator==(const RelayStart&) const = default;
};
std::string to_text(const RelayStart& start);
Result<RelayStart> parse_relay_start(std::string_view text);

struct RelayEnded {
  int code = 0;
  std::string words{};
  bool operator==(const RelayEnded&) const = default;
};
std::string to_text(const RelayEnded& ended);
Result<RelayEnded> parse_relay_ended(std::string_view text);

// `marked`: a line with its mark and newline. The same, about that host.
std::string relayed(std::size_t host, std::string_view marked);
struct Relayed {
  std::size_t host = 0;
  std::string_view line{};  // without mark
};
// Of a line without mark and newline.
std::optional<Relayed> parse_relayed(std::string_view line);

}  // namespace drun::hosts

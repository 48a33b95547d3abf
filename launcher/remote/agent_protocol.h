// core. The messages between launcher and agent over ssh's standard input and output, and their
// encoding.
//
//   launcher -> agent  Lines: Start, then any number of Lookups, NodeSpec, and Go when all hosts
//                      are ready. After that, at any time, "signal N", "kill" and empty lines
//                      (agent/process/lifeline.h); with --stdin=rank0 also "input N" with N bytes,
//                      and "input end". End of file ends the job on that host.
//   agent -> launcher  The channel (agent/output/host_channel.h), whose preamble has Start's nonce.
//                      Control frames: HostReport in answer to Start, LookupAnswers in answer to
//                      Lookups, Hello when the agent is ready; "room N" when rank 0 is on this host
//                      and can take N more bytes of input; at the end End. A Hello with a problem
//                      may arrive at any time before. Workers' lines are Out and Err frames with
//                      formatted text or, if the launcher writes the log files, Lines frames.
//
// Standard error of the agent itself (a crash, a sanitizer) and output of ssh and the login are
// outside the frames: the launcher prints them with the host's name and never interprets them.
//
// A message is a word and one line of JSON: an array of the fields in message_fields.h. Texts hold
// bytes: bytes beyond ASCII are encoded as the characters U+0080 to U+00FF.
// Errors:  Refused, with the defect of the message. Never throws.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/hosts/node_plan.h"
#include "launcher/plan/plan.h"
#include "launcher/remote/meeting.h"
#include "launcher/report/report.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/world.h"

namespace drun::hosts {

inline constexpr int kProtocol = 7;
inline constexpr std::size_t kMostLineBytes = std::size_t{4} << 20;

// What an agent needs to collect the facts of its host.
struct Start {
  std::string nonce{};  // for the channel's preamble
  std::string directory{};
  std::vector<EnvironmentEntry> devices{};  // variables for which names_devices() is true
  std::vector<int> cpus{};                  // of a local node; empty: all
  std::string scratch{};  // of a local node: the parent of its scratch directories
  Lookups lookups{};
  bool operator==(const Start&) const = default;
};

// What an agent runs, and how it reports the end.
struct NodeSpec {
  Plan plan{};  // the workers' environment is a change of the agent's own
  ReportStyle style{};
  std::vector<std::string> removed_variables{};
  bool listens = false;          // this host has an endpoint: listen before Hello
  bool has_own_address = false;  // given by the user
  bool has_master_port = false;  // likewise
  bool operator==(const NodeSpec&) const = default;
};

struct Hello {
  std::string problem{};  // why the job cannot start here; empty: ready
  int exit_code = 0;      // to use with `problem`
  Place place{};          // where this agent listens
  std::string machine{};  // equal for the same kernel and network; empty: unknown
  bool operator==(const Hello&) const = default;
};

struct End {
  int exit_code = 0;
  std::string text{};            // the report as text
  std::string report{};          // the report for --report
  bool could_not_reach = false;  // could reach no endpoint; it has not taken part
  std::string events{};          // events of this node, for the HTML report
  bool operator==(const End&) const = default;
};

using Message = std::variant<Start, HostReport, Lookups, LookupAnswers, NodeSpec, Hello, Go, End>;

// One line, without its newline.
std::string to_text(const Message& message);
// Also checks what the receiver relies on, such as the number of workers. A Start of another
// kProtocol is an unknown message.
Result<Message> parse(std::string_view text);

// Removes from the workers' environment what is the same in the agent's, and the reverse.
void remove_own_variables(NodeSpec& spec, const std::vector<EnvironmentEntry>& own);
void add_own_variables(NodeSpec& spec, const std::vector<EnvironmentEntry>& own);

}  // namespace drun::hosts

// core. The messages between starter and agent over ssh's standard input and output, as bytes and
// as values.
//
//   starter -> agent   Start, one line of JSON; then "go" once all hosts are ready; then, any time,
//                      "signal N", "kill" and empty lines (agent/lifeline.h). With --stdin=rank0
//                      also "input N", N bytes, and "input end". End of file ends the job there.
//   agent -> starter   the channel (agent/host_channel.h), whose preamble has Start's nonce.
//   Control
//                      frames: Hello first, once the agent knows whether it can start; "room N":
//                      rank 0 is here, and takes N more bytes of input; at the end End. Hello and
//                      End are JSON. Workers' lines are Out and Err frames, text as it is shown,
//                      or, with sends_lines, Lines frames.
//
// Text:    the agent's own standard error (a crash, a sanitizer) and what ssh and the login print
//          are outside of frames: shown behind the host's name, never interpreted.
// Shape:   every text is bytes: those beyond ASCII travel as the characters U+0080 to U+00FF.
// Units:   a line is at most kMostLineBytes.
// Errors:  Refused, saying what is wrong with the line. Never throws.
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/result.h"
#include "rendezvous/world.h"

namespace drun::hosts {

inline constexpr int kProtocol = 5;
inline constexpr std::size_t kMostLineBytes = std::size_t{4} << 20;

struct Start {
  int protocol = kProtocol;
  std::string nonce{};                          // of the channel's preamble
  std::vector<std::string> arguments{};         // with argv[0]
  std::vector<EnvironmentEntry> environment{};  // -x: for the workers alone
  std::string directory{};
  std::string host{};         // what the user calls this machine
  std::string label{};        // in front of workers' lines
  std::string secret{};       // of the job; empty: none, and then not written
  std::string report_file{};  // where the starter writes it: to be named in the report
  // The starter keeps the workers' files, in log_directory: their lines go to it. Which: all, or
  // what --redirects and --tee choose.
  bool sends_lines = false;
  bool keeps_all = false;
  std::string log_directory{};
  int columns = 80;  // of the starter's terminal
  bool has_colour = false;
  long utc_offset_s = 0;
  bool operator==(const Start&) const = default;
};

struct Hello {
  int protocol = kProtocol;
  std::string version{};
  std::string problem{};  // why nothing can be started here; empty: ready
  int exit_code = 0;      // that goes with it
  bool operator==(const Hello&) const = default;
};

struct End {
  int exit_code = 0;
  std::string text{};    // the report, in words
  std::string report{};  // the same for --report
  bool operator==(const End&) const = default;
};

// With the newline.
std::string to_line(const Start& start);
// Payloads of Control frames.
std::string to_text(const Hello& hello);
std::string to_text(const End& end);

// Without the newline.
Result<Start> parse_start(std::string_view line);
Result<Hello> parse_hello(std::string_view line);
Result<End> parse_end(std::string_view line);

}  // namespace drun::hosts

// core. The messages between starter and agent over ssh's standard input and output, as bytes and
// as values.
//
//   starter -> agent   Start, one line of JSON; then "go" once all hosts are ready, with where the
//                      nodes meet (meeting.h); then, any time,
//                      "signal N", "kill" and empty lines (agent/process/lifeline.h). With
//                      --stdin=rank0 also "input N", N bytes, and "input end". End of file ends the
//                      job there.
//   agent -> starter   the channel (agent/output/host_channel.h), whose preamble has Start's nonce.
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

#include <nlohmann/json.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/remote/meeting.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/world.h"

// core. Objects of JSON that go over ssh, read field by field; for agent_protocol.cc and
// agent_protocol.cc.
//
// Shape:   texts are bytes: those beyond ASCII travel as the characters U+0080 to U+00FF.
// Errors:  the first field that is missing or of another kind is what take() says.
// Thread:  any.

namespace drun::hosts {

using Json = nlohmann::ordered_json;

std::string to_characters(std::string_view bytes);
// Of what to_characters gave; other characters become '?'.
std::string to_bytes(std::string_view text);
Json json_texts(const std::vector<std::string>& words);

class JsonFields {
 public:
  JsonFields(std::string_view line, std::size_t most_bytes);
  explicit JsonFields(Json json);

  std::string text(const char* name, bool is_needed = true);
  int number(const char* name, bool is_needed = true);
  std::vector<int> numbers(const char* name);  // may be missing: none
  bool flag(const char* name);
  std::vector<std::string> words(const char* name, bool is_needed = true) {
    return words_of(name, find(name, is_needed));
  }
  std::vector<Json> list(const char* name);
  std::vector<EnvironmentEntry> entries(const char* name);

  template <typename T>
  Result<T> take(T value, std::string_view what) {
    if (wrong_.empty()) return value;
    return Error{ErrorCode::Refused, std::string(what) + ": " + wrong_};
  }

 private:
  const Json* find(const char* name, bool is_needed);
  void complain(const char* name) {
    if (wrong_.empty()) wrong_ = std::string("no proper \"") + name + "\"";
  }
  std::vector<std::string> words_of(const char* name, const Json* json);

  Json json_;
  std::string wrong_;
};

}  // namespace drun::hosts

namespace drun::hosts {

inline constexpr int kProtocol = 6;
inline constexpr std::size_t kMostLineBytes = std::size_t{4} << 20;

struct Start {
  int protocol = kProtocol;
  std::string nonce{};                          // of the channel's preamble
  std::vector<std::string> arguments{};         // with argv[0]
  std::vector<EnvironmentEntry> environment{};  // -x: for the workers alone
  std::string directory{};
  std::string host{};        // what the user calls this machine
  std::vector<int> cpus{};   // of a local node: those that it has; empty: all
  std::string interface {};  // of its own network; empty: it is the machine's
  std::string label{};       // in front of workers' lines
  // "go" says where the nodes meet; the agent of an endpoint listens before it sends Hello.
  bool is_placed_later = false;
  int seat = -1;                 // which endpoint is this host's; -1: none
  bool has_own_address = false;  // the user named it
  std::string secret{};          // of the job; empty: none, and then not written
  std::string report_file{};     // where the starter writes it: to be named in the report
  bool keeps_events = false;     // End::events is wanted
  // The starter keeps the workers' files, in log_directory: their lines go to it. Which: all, or
  // what --redirects and --tee choose.
  bool sends_lines = false;
  bool keeps_all = false;
  std::string log_directory{};
  int columns = 0;  // of the starter's terminal; 0: not known
  bool has_colour = false;
  long utc_offset_s = 0;
  bool operator==(const Start&) const = default;
};

struct Hello {
  int protocol = kProtocol;
  std::string version{};
  std::string problem{};  // why nothing can be started here; empty: ready
  int exit_code = 0;      // that goes with it
  Place place{};          // where this agent listens
  std::string machine{};  // the same text: the same kernel and network; empty: not known
  bool operator==(const Hello&) const = default;
};

struct End {
  int exit_code = 0;
  std::string text{};            // the report, in words
  std::string report{};          // the same for --report
  bool could_not_reach = false;  // any address at which the nodes meet: it has not taken part
  std::string events{};          // of this node, for the HTML report
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

// core. The messages between the starter and a relay: a process on the first host of a branch,
// which logs in to the hosts behind it and passes on what those and the starter send. It decides
// nothing. Hosts are named by their number in the job.
//
//   starter -> relay   "relay <protocol> <nonce>\n", then
//                      "start <host> <bytes>\n" and a RelayStart as JSON: begin that session
//                      "to <host> <bytes>\n" and those bytes, for its standard input
//                      "eof <host>\n"  "kill <host>\n"  and empty lines: the starter is there
//   relay -> starter   the channel (agent/output/host_channel.h): a Control frame with the relay's
//   own
//                      Hello (agent_protocol.h), then Relayed frames
//
// Errors:  Refused, or absent. Never throws.   Owner: values.   Thread: any.

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

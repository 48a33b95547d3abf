// core. The messages between launcher and agent over ssh's standard input and output, and their
// encoding.
//
//   launcher -> agent  Start, one line of JSON. Once all hosts are ready, "go" with the endpoints
//                      (meeting.h). After that, at any time, "signal N", "kill" and empty lines
//                      (agent/process/lifeline.h); with --stdin=rank0 also "input N" with N bytes,
//                      and "input end". End of file ends the job on that host.
//   agent -> launcher  The channel (agent/output/host_channel.h), whose preamble has Start's nonce.
//                      Control frames: first Hello, when the agent knows whether it can start;
//                      "room N" when rank 0 is on this host and can take N more bytes of input; at
//                      the end End. Hello and End are JSON. Workers' lines are Out and Err frames
//                      with formatted text or, with sends_lines, Lines frames.
//
// Standard error of the agent itself (a crash, a sanitizer) and output of ssh and the login are
// outside the frames: the launcher prints them with the host's name and never interprets them.
//
// JSON texts hold bytes: bytes beyond ASCII are encoded as the characters U+0080 to U+00FF. A line
// has at most kMostLineBytes.
// Errors:  Refused, with the defect of the line. Never throws.
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

namespace drun::hosts {

// --- JSON, read field by field
//
// take() reports the first field that is missing or has the wrong type. Texts hold bytes, as above.

using Json = nlohmann::ordered_json;

std::string to_characters(std::string_view bytes);
// The inverse of to_characters; other characters become '?'.
std::string to_bytes(std::string_view text);
Json json_texts(const std::vector<std::string>& words);

class JsonFields {
 public:
  JsonFields(std::string_view line, std::size_t most_bytes);
  explicit JsonFields(Json json);

  std::string text(const char* name, bool is_needed = true);
  int number(const char* name, bool is_needed = true);
  std::vector<int> numbers(const char* name);  // empty if missing
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

// --- Messages between launcher and agent

inline constexpr int kProtocol = 6;
inline constexpr std::size_t kMostLineBytes = std::size_t{4} << 20;

struct Start {
  int protocol = kProtocol;
  std::string nonce{};                          // for the channel's preamble
  std::vector<std::string> arguments{};         // including argv[0]
  std::vector<EnvironmentEntry> environment{};  // -x: only for the workers
  std::string directory{};
  std::string host{};        // the user's name for this machine
  std::vector<int> cpus{};   // of a local node; empty: all
  std::string interface {};  // of its network namespace; empty: none
  std::string scratch{};     // of a local node: the parent of its scratch directories
  std::string label{};       // prefix of the workers' lines
  // "go" will bring the endpoints; the agent of an endpoint listens before it sends Hello.
  bool is_placed_later = false;
  int seat = -1;                 // index of this host's endpoint; -1: none
  bool has_own_address = false;  // given by the user
  std::string secret{};          // of the job; empty: none, and omitted from the message
  std::string report_file{};     // path on the launcher's host, for use in the report
  bool keeps_events = false;     // request End::events
  // The launcher writes the log files, to log_directory, and needs the workers' lines: all of them,
  // or those selected by --redirects and --tee.
  bool sends_lines = false;
  bool keeps_all = false;
  std::string log_directory{};
  int columns = 0;  // of the launcher's terminal; 0: unknown
  bool has_color = false;
  long utc_offset_s = 0;
  bool operator==(const Start&) const = default;
};

struct Hello {
  int protocol = kProtocol;
  std::string version{};
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

// Includes the newline.
std::string to_line(const Start& start);
// Payloads of Control frames.
std::string to_text(const Hello& hello);
std::string to_text(const End& end);

// Expects the line without the newline.
Result<Start> parse_start(std::string_view line);
Result<Hello> parse_hello(std::string_view line);
Result<End> parse_end(std::string_view line);

// --- Messages between launcher and relay
//
// A relay is a process on the first host of a branch that logs in to the hosts behind it and
// forwards messages in both directions. It makes no decisions. Hosts are identified by their number
// in the job.
//
//   launcher -> relay  "relay <protocol> <nonce>\n", then
//                      "start <host> <bytes>\n" and a RelayStart as JSON: begins that session
//                      "to <host> <bytes>\n" and the bytes for the session's standard input
//                      "eof <host>\n", "kill <host>\n"
//                      empty lines, as a heartbeat of the launcher
//   relay -> launcher  The channel (agent/output/host_channel.h): a Control frame with the relay's
//                      Hello, then Relayed frames.
//
// Errors: Refused, or nullopt.

// The first line for a relay, with the nonce of its channel's preamble.
std::string relay_line(std::string_view nonce);
struct RelayLine {
  int protocol = 0;
  std::string nonce{};  // empty in older protocols
  bool operator==(const RelayLine&) const = default;
};
// nullopt if the line is for an agent.
std::optional<RelayLine> parse_relay_line(std::string_view line);

struct RelayCommand {
  enum class Order { Start, To, Eof, Kill };
  Order order = Order::To;
  std::size_t host = 0;
  std::size_t bytes = 0;  // number of bytes that follow
  bool operator==(const RelayCommand&) const = default;
};
std::string to_line(const RelayCommand& command);
std::optional<RelayCommand> parse_relay_command(std::string_view line);

struct RelayStart {
  std::vector<std::string> argv{};  // of its ssh; empty: the relay's host, without ssh
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

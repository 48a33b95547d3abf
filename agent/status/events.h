// core. What happens on a node in the course of its job, for those who look on: `--events`.
//
// Shape:   AgentStarted, then per round RoundBegan .. RoundEnded, then JobEnded.
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/evidence.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/job/world.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

struct AgentStarted {
  int local_world_size = 1;
  std::vector<std::string> command;
};
struct RoundBegan {
  World world;
};
struct WorkerStarted {
  int round = 0;
  int rank = 0;
  int local_rank = 0;
  int pid = 0;
};
struct WorkerFailed {
  Failure failure;
};
// Of a worker of this node: no sign of life for --hang-timeout.
struct HangSuspectedHere {
  Failure failure;
};
// What all nodes found out about a hang; the round is stopped for it.
struct HangFoundAnywhere {
  int round = 0;
  std::string cause;
  Evidence evidence;
};
// The job goes on without that node.
struct NodeLeftOut {
  LeftOut node;
};
// The workers of this node are being stopped, by whatever happened anywhere.
struct RoundStopping {
  int round = 0;
};
// No worker of the round runs here any more.
struct RoundEnded {
  int round = 0;
  bool has_succeeded = false;  // all of this node's workers returned 0
};
struct SignalCame {
  int signal = 0;
};
struct JobEnded {
  Outcome outcome;
};
using Event =
    std::variant<AgentStarted, RoundBegan, WorkerStarted, WorkerFailed, HangSuspectedHere,
                 HangFoundAnywhere, NodeLeftOut, RoundStopping, RoundEnded, SignalCame, JobEnded>;

// Where it happens: the same in every line of one file.
struct EventPlace {
  std::string run_id;
  std::string host;
  int pid = 0;  // the agent's
};

// One JSON object in one line, newline included: "time", "event", "run_id", "host", "agent_pid",
// then what the event has (docs/guide/running-jobs.md). Bytes that are not UTF-8
// become U+FFFD. Never throws.
std::string event_line(const Event& event, const EventPlace& place, WallTime time);

}  // namespace drun::agent

// edge. `--events FILE`: one line for everything that happens, while it happens.
//
// File:    appended to, so that several agents of one machine may share it (a line is one write);
//          made with 0600 when it is not there. A symbolic link is not followed, but below /dev.
//          A pipe or terminal is never waited for: lines that it does not take are lost.
// Writes:  in a thread of its own (output/file_writer.h): a file system that hangs holds up events
//          and nothing else. At most kMostEventBytes wait; events beyond that are lost.
// Owner:   Agent.   Thread: the io_context's only.
// Errors:  open: System, naming the file and the reason; it blocks, before the job begins. Later
//          ones, and lost events, are logged once.

namespace drun::agent {

inline constexpr std::size_t kMostEventBytes = std::size_t{1} << 20;

class EventFile {
 public:
  EventFile();  // drops everything
  EventFile(EventFile&&) noexcept;
  EventFile& operator=(EventFile&&) noexcept;
  ~EventFile();
  static Result<EventFile> open(asio::io_context& io, const std::string& path, EventPlace place,
                                Log log);

  void write(const Event& event);

  // After the loop's end: waits until all is written; absent: without a limit.
  void finish(std::optional<std::chrono::milliseconds> at_most);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// A WorkerStarted of each; pid 0: it was not.
void write_started(EventFile& events, const World& world, const std::vector<int>& pids);

}  // namespace drun::agent

// core. Reads the events of a job (agent/status/events.h), in order of time, into the model of
// timeline.h.
//
//   for each event: job.read(readings[n], {...});  job.finish();
//
// A field may be missing, of another type, or as long as the line: texts and lists are cut to their
// limits, numbers to the valid range, and other fields count as missing. Never throws; events of
// unknown names are skipped.
#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/report/timeline.h"

namespace drun::timeline {

using EventJson = nlohmann::json;

inline constexpr std::size_t kMostNameBytes = 256;
inline constexpr double kLongest = 1e9;  // seconds

// Fields of an event: "", 0 or no value if there is no such field.
std::string text_of(const EventJson& event, const char* name, std::size_t most = kMostNameBytes);
std::optional<double> number_of(const EventJson& event, const char* name);  // finite
int int_of(const EventJson& event, const char* name, int least = 0);

// Converts "2026-11-21T13:03:07.123456Z" to seconds since 1970.
std::optional<double> seconds_of(const std::string& time);

// One node while its events are read.
struct NodeReading {
  Node node{};
  std::vector<std::string> devices{};  // by local rank
  std::vector<std::string> cpus{};
  std::string log_directory{};
  std::map<std::pair<int, int>, Rank> ranks{};  // by round and local rank
  std::optional<Phase> phase{};
  double phase_began_s = 0;
  int round = -1;
  std::optional<double> term{};

  void enter(Phase next, double at_s);
  // The rank of a worker's event. Null if the node has too many.
  Rank* rank_of(const EventJson& event);
  // Moves all ranks of the node's last reported round, and failures of earlier rounds, to `node`.
  void sort_ranks();
};

struct Event {
  std::string_view name;
  std::size_t node = 0;  // index
  double at_s = 0;
  const EventJson& fields;
};

class JobReading {
 public:
  explicit JobReading(Job& job) : job_(job) {}

  void read(NodeReading& reading, const Event& event);
  // Completes the job with what several events say together.
  void finish();

 private:
  void agent_started(NodeReading& reading, const Event& event);
  void coordinator_joined(NodeReading& reading, const Event& event);
  void fault_injected(NodeReading& reading, const Event& event);
  void hang_found(NodeReading& reading, const Event& event);
  void hang_suspected(NodeReading& reading, const Event& event);
  void job_ended(NodeReading& reading, const Event& event);
  void node_left_out(NodeReading& reading, const Event& event);
  void phase(NodeReading& reading, const Event& event);
  void round_began(NodeReading& reading, const Event& event);
  void round_ended(NodeReading& reading, const Event& event);
  void round_stopping(NodeReading& reading, const Event& event);
  void signal(NodeReading& reading, const Event& event);
  void slow_found(NodeReading& reading, const Event& event);
  void worker_alive(NodeReading& reading, const Event& event);
  void worker_ended(NodeReading& reading, const Event& event);
  void worker_failed(NodeReading& reading, const Event& event);
  void worker_started(NodeReading& reading, const Event& event);

  void add_mark(MarkKind kind, const Event& event, std::string text);
  void add_mark(Mark mark);
  void add_timeouts(const Event& event);
  void add_details(TimedFailure& failure) const;
  Round* round_of(const EventJson& event);

  Job& job_;
  std::map<int, Round> rounds_;
  std::map<std::pair<int, int>, TimedFailure> details_;  // by round and rank
  std::set<std::string> lost_;
  std::set<std::string> faults_;
  std::set<std::string> slow_;
  std::map<int, std::string> hang_stacks_;                   // by round
  std::optional<std::pair<double, std::size_t>> last_stop_;  // time, node
  bool has_phases_ = false;
};

}  // namespace drun::timeline

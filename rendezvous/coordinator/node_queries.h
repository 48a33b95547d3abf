// core. One query of the stacks of all workers: the nodes that were asked, have answered, or are
// silent; and the suspicions that caused it. Part of the coordinator's machine (round.h).
//
//             asked / suspicion has settled       all answered, or time is up
//   closed ------------------------------> open ------------------------------> closed
//
// Shape:   one query at a time; a request during it gets its result. Answers with another number,
// of
//          nodes that were not asked, and second answers are dropped.
// Units:   steady-clock points given by the caller.
// Owner:   a value.   Thread: any, one at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "rendezvous/coordinator/hang_verdict.h"
#include "rendezvous/coordinator/round_events.h"
#include "rendezvous/coordinator/silent_ranks.h"
#include "rendezvous/job/census.h"
#include "rendezvous/job/evidence.h"

namespace drun::rendezvous {

// Longer than an agent takes at most (agent/stacks/stacks.h).
constexpr std::chrono::seconds kLookLimit{10};
constexpr std::size_t kMostAskers = 64;
constexpr std::chrono::milliseconds kMostSettle{5000};

struct StackQuery {
  using Time = std::chrono::steady_clock::time_point;

  std::uint64_t number = 0;  // of the latest look
  bool is_open = false;
  Time answer_by{};
  std::map<int, std::string> missing{};  // asked and not answered: node rank, name
  Evidence found{};                      // for people: what a message carries
  RankPositions standings{};             // for the verdict: of all ranks
  std::vector<Asker> askers{};
  Suspects suspects{};
  // When they are looked into: others of the same hang are noticed a little later.
  std::optional<Time> suspects_at{};
};

// `nodes`: node rank and name of all that are to answer.
void open_look(StackQuery& looking, std::map<int, std::string> nodes, StackQuery::Time now);

struct Answer {
  int node = 0;
  std::uint64_t number = 0;
};
bool is_awaited(const StackQuery& looking, const Answer& answer);
// Nothing when it is not awaited.
void take_answer(StackQuery& looking, const Answer& answer, const Evidence& evidence);

// A node that was asked will not answer.
void lose_answer(StackQuery& looking, int node, const std::string& reason);

bool is_complete(const StackQuery& looking, StackQuery::Time now);

// Ends the query. Returns what was found, with a note for each silent node.
Evidence close_look(StackQuery& looking);

std::optional<StackQuery::Time> deadline(const StackQuery& looking);

}  // namespace drun::rendezvous

// core. One census of the nodes of a job: the nodes that were asked or have answered, and who
// requested it. Part of the coordinator's machine (round.h).
//
//             asked                all answered, gone, or time is up
//   closed -----------> open ------------------------------------------> closed
//
// Shape:   one at a time; a request during it, or just after it, gets its result. Answers with
//          another number, and of nodes that were not asked, are dropped.
// Cost:    O(1) an answer, a message to each node and back; no more than two a second.
// Owner:   a value.   Thread: any, one at a time.

namespace drun::rendezvous {

constexpr std::chrono::milliseconds kCensusFresh{500};

struct CensusTaking {
  using Time = std::chrono::steady_clock::time_point;

  std::uint64_t number = 0;  // of the latest
  bool is_open = false;
  Time answer_by{};
  std::unordered_set<std::uint64_t> missing{};               // peers asked and not answered
  std::unordered_map<std::uint64_t, NodeSummary> answers{};  // by peer
  std::vector<Asker> askers{};
  std::shared_ptr<const CoordinatorMessage> last{};  // CensusReply, for who asks until then
  Time last_until{};
};

}  // namespace drun::rendezvous

// core. Parts of log files that members have asked for, each answered by one node. Part of the
// coordinator's machine (round.h).
//
// Bounds:  kMostLogLookups at a time, kMostLogLookupsOfOne of one member; further ones are refused.
// Shape:   answers with another number, from another node, and after kLogLimit are dropped.
// Owner:   a value.   Thread: any, one at a time.

namespace drun::rendezvous {

constexpr std::chrono::seconds kLogLimit{5};
constexpr std::size_t kMostLogLookups = 256;
constexpr std::size_t kMostLogLookupsOfOne = 16;

struct LogLookups {
  using Time = std::chrono::steady_clock::time_point;
  struct Pending {
    Asker asker{};
    int node = 0;
    std::uint64_t peer = 0;  // of that node
    Time answer_by{};
  };

  std::uint64_t last_number = 0;
  std::map<std::uint64_t, Pending> pending{};  // by number, and so by time
};

bool has_room(const LogLookups& lookups, std::uint64_t asking_peer);
// Removes those that are overdue at `now`, or that wait for `node`.
std::vector<LogLookups::Pending> take_overdue(LogLookups& lookups, LogLookups::Time now);
std::vector<LogLookups::Pending> take_of_node(LogLookups& lookups, int node);

}  // namespace drun::rendezvous

// core. The coordinator's queries of all nodes, as part of its state machine (round.h): the stacks
// of all workers (StackQuery), and the state of all nodes (CensusQuery). Times are points of the
// steady clock, given by the caller.
//
//             requested, or a suspicion has settled      all answered, or time is up
//   closed --------------------------------------> open ------------------------------> closed
//
// There is one query of each kind at a time. A request during a query gets its result. Answers with
// another number, answers of nodes that were not asked, and second answers are ignored.
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

// --- Stacks

// Longer than the time limit of an agent (agent/stacks/stacks.h).
constexpr std::chrono::seconds kLookLimit{10};
constexpr std::size_t kMostRequesters = 64;
constexpr std::chrono::milliseconds kMostSettle{5000};

struct StackQuery {
  using Time = std::chrono::steady_clock::time_point;

  std::uint64_t number = 0;  // of the latest query
  bool is_open = false;
  Time answer_by{};
  std::map<int, std::string> missing{};  // nodes that have not answered: node rank, name
  Evidence found{};                      // to be shown, within the limits of a message
  RankPositions positions{};             // of all ranks, for the verdict
  std::vector<Requester> requesters{};
  Suspects suspects{};
  // When the query about the suspects begins: nodes detect the same hang at different times.
  std::optional<Time> suspects_at{};
  std::optional<std::uint64_t> begun_by_all{};  // of the last verdict
};

// `nodes`: node rank and name of the nodes that are asked.
void open_look(StackQuery& stack_query, std::map<int, std::string> nodes, StackQuery::Time now);

struct Answer {
  int node = 0;
  std::uint64_t number = 0;
};
bool is_awaited(const StackQuery& stack_query, const Answer& answer);
// Does nothing if the answer is not awaited.
void take_answer(StackQuery& stack_query, const Answer& answer, const Evidence& evidence);

// A node that was asked will not answer.
void lose_answer(StackQuery& stack_query, int node, const std::string& reason);

bool is_complete(const StackQuery& stack_query, StackQuery::Time now);

// Ends the query. Returns what was found, with a note for each silent node.
Evidence close_look(StackQuery& stack_query);

std::optional<StackQuery::Time> deadline(const StackQuery& stack_query);

// --- Status

// A request within this time after a census gets its result, so there are at most two a second. A
// census costs one message to each node and back.
constexpr std::chrono::milliseconds kCensusFresh{500};

struct CensusQuery {
  using Time = std::chrono::steady_clock::time_point;

  std::uint64_t number = 0;  // of the latest census
  bool is_open = false;
  Time answer_by{};
  std::unordered_set<std::uint64_t> missing{};               // peers asked and not answered
  std::unordered_map<std::uint64_t, NodeSummary> answers{};  // by peer
  std::vector<Requester> requesters{};
  std::shared_ptr<const CoordinatorMessage> last{};  // CensusReply, until last_until
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
    Requester asker{};
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

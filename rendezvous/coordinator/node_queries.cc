#include "rendezvous/coordinator/node_queries.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

#include "rendezvous/coordinator/node_line.h"
#include "rendezvous/coordinator/round_state.h"
#include "rendezvous/job/restart_policy.h"
#include "rendezvous/protocol/control_wire.h"
#include "rendezvous/protocol/wire_fields.h"

namespace drun::rendezvous {

OpenQuery& NodeQueries::open(QueryKind kind, const std::vector<Peer>& asked, Time now) {
  OpenQuery& query = open_[++last_number_];
  query.number = last_number_;
  query.kind = kind;
  query.answer_by = now + rules_of(kind).limit;
  query.missing.insert(asked.begin(), asked.end());
  return query;
}

OpenQuery* NodeQueries::shared(QueryKind kind) {
  if (!rules_of(kind).is_shared) return nullptr;
  const auto found = std::find_if(open_.begin(), open_.end(),
                                  [kind](const auto& each) { return each.second.kind == kind; });
  return found == open_.end() ? nullptr : &found->second;
}

bool NodeQueries::has_room(QueryKind kind, Peer requester) const {
  std::size_t all = 0;
  std::size_t own = 0;
  for (const auto& [number, query] : open_) {
    if (query.kind != kind) continue;
    all += query.requesters.size();
    for (const Requester& each : query.requesters) own += each.peer == requester ? 1 : 0;
  }
  return all < kMostRequests && own < kMostRequestsOfMember;
}

OpenQuery* NodeQueries::take_awaited(std::uint64_t number, Peer peer) {
  const auto found = open_.find(number);
  const bool is_awaited = found != open_.end() && found->second.missing.erase(peer) > 0;
  return is_awaited ? &found->second : nullptr;
}

void NodeQueries::lose(Peer peer, const std::string& note) {
  for (auto& [number, query] : open_) {
    if (query.missing.erase(peer) > 0) query.lost.push_back(note);
  }
}

std::vector<OpenQuery> NodeQueries::take_ended(Time now) {
  std::vector<OpenQuery> ended;
  for (auto each = open_.begin(); each != open_.end();) {
    const bool has_ended = each->second.missing.empty() || now >= each->second.answer_by;
    if (has_ended) ended.push_back(std::move(each->second));
    each = has_ended ? open_.erase(each) : std::next(each);
  }
  return ended;
}

std::optional<Time> NodeQueries::next_deadline() const {
  std::optional<Time> next;
  for (const auto& [number, query] : open_)
    next = std::min(next.value_or(query.answer_by), query.answer_by);
  return next;
}

std::shared_ptr<const QueryResult> NodeQueries::fresh_result(QueryKind kind, Time now) const {
  const auto found = kept_.find(kind);
  return found != kept_.end() && now < found->second.until ? found->second.result : nullptr;
}

void NodeQueries::keep(QueryKind kind, std::shared_ptr<const QueryResult> result, Time now) {
  const std::chrono::milliseconds fresh = rules_of(kind).fresh;
  if (fresh.count() > 0) kept_[kind] = {std::move(result), now + fresh};
}

// --- Queries as part of the round

namespace {

constexpr std::size_t kNodeBytes = 48;  // of a CensusNode without its texts

Milliseconds since(Time then, Time now) {
  return std::chrono::duration_cast<Milliseconds>(std::max(now - then, Time::duration(0)));
}

JobPhase phase_of(const RoundState& state) {
  switch (state.phase) {
    case RoundPhase::Joining:
      return JobPhase::Joining;
    case RoundPhase::Running:
      return JobPhase::Running;
    case RoundPhase::Stopping:
      return JobPhase::Stopping;
    case RoundPhase::Pausing:
      return JobPhase::Pausing;
    case RoundPhase::Ending:
    case RoundPhase::Over:
    case RoundPhase::SteppedDown:
      break;
  }
  return JobPhase::Finishing;
}

void add_answer(CensusNode& node, const OpenQuery& query, Peer peer) {
  const auto answer = query.answers.find(peer);
  if (answer != query.answers.end())
    node.answer = answer->second;
  else
    node.presence = query.missing.contains(peer) ? NodePresence::Asked : NodePresence::Coming;
}

CensusNode node_of(const RoundState& state, const OpenQuery& query, int rank, Time now) {
  const RoundNode& self = node_at(state, rank);
  CensusNode node{.node_rank = rank,
                  .host = self.hello.host,
                  .workers = self.hello.local_world_size,
                  .heard = since(self.heard, now)};
  if (self.is_lost)
    node.presence = NodePresence::Lost;
  else
    add_answer(node, query, self.peer);
  return node;
}

void add(Census& census, std::size_t& bytes, CensusNode node) {
  bytes += kNodeBytes + std::min(node.host.size(), kNameBytes) + node.answer.size();
  if (bytes > kMostCensusBytes || census.nodes.size() >= kMostCensusNodes)
    ++census.nodes_not_listed;
  else
    census.nodes.push_back(std::move(node));
}

// The node that has the log files of this rank: its own, or the one that gathers all lines.
std::optional<int> node_with_log(const RoundState& state, int rank) {
  const auto& nodes = state.nodes;
  const auto after =
      std::upper_bound(nodes.begin(), nodes.end(), rank,
                       [](int wanted, const RoundNode& node) { return wanted < node.base_rank; });
  if (after == nodes.begin()) return std::nullopt;
  auto found = std::prev(after);
  if (rank >= found->base_rank + found->hello.local_world_size) return std::nullopt;
  if (state.spec.line_window_bytes > 0) {
    found = std::find_if(nodes.begin(), nodes.end(),
                         [](const RoundNode& node) { return node.hello.is_coordinator; });
    if (found == nodes.end()) return std::nullopt;
  }
  return static_cast<int>(found - nodes.begin());
}

// Which nodes have not answered, and why.
std::vector<std::string> missing_notes(const RoundState& state, const OpenQuery& query) {
  std::vector<std::string> notes = query.lost;
  if (query.missing.empty()) return notes;
  for (int node = 0; node < static_cast<int>(state.nodes.size()); ++node) {
    if (query.missing.contains(node_at(state, node).peer))
      notes.push_back(name_of(state, node) + ": no answer in " +
                      std::to_string(rules_of(query.kind).limit.count()) + " s");
  }
  return notes;
}

// Refused: why there is no node to ask.
Result<std::vector<Peer>> peers_asked(const RoundState& state, const Query& query) {
  const auto refusal = [](std::string reason) { return Error{ErrorCode::Refused, reason}; };
  const bool has_world = state.phase == RoundPhase::Running || state.phase == RoundPhase::Stopping;
  switch (query.kind) {
    case QueryKind::Status: {
      // Nodes that have received the outcome do not answer.
      const bool has_ended = state.phase == RoundPhase::Ending || state.phase == RoundPhase::Over;
      return has_ended ? std::vector<Peer>() : all_peers(state);
    }
    case QueryKind::Stacks:
      if (!has_world) return refusal("no workers run");
      return seated_peers(state);
    case QueryKind::Log:
      break;
  }
  if (!has_world && state.phase != RoundPhase::Pausing) return refusal("no workers run");
  const std::optional<int> node = node_with_log(state, query.rank);
  if (!node) return refusal("there is no rank " + std::to_string(query.rank));
  const RoundNode& target = node_at(state, *node);
  if (target.is_lost) return refusal(name_of(state, *node) + " is lost");
  return std::vector<Peer>{target.peer};
}

// Of a query that has ended.
QueryResult result_of(const RoundState& state, OpenQuery& query, Time now) {
  const std::vector<std::string> notes = missing_notes(state, query);
  QueryResult result;
  switch (query.kind) {
    case QueryKind::Status:
      result.answer = encode_census(census_of(state, query, now));
      break;
    case QueryKind::Stacks:
      for (const std::string& note : notes) query.stacks->add_note(note);
      result.answer = query.stacks->merged();
      break;
    case QueryKind::Log:
      if (query.answers.empty())
        result.note = notes.empty() ? "its node has not answered" : notes.front();
      else
        result.answer = std::move(query.answers.begin()->second);
      break;
  }
  return result;
}

OpenQuery& ask(RoundStep& step, QueryKind kind, std::vector<Peer> peers, std::string question) {
  OpenQuery& query = step.state.queries.open(kind, peers, step.now);
  if (kind == QueryKind::Stacks) {
    assert(step.state.spec.make_stack_answers != nullptr);
    query.stacks = step.state.spec.make_stack_answers();
  }
  step.actions.emplace_back(
      SendAll{std::move(peers), NodeQuery{query.number, kind, std::move(question)}});
  return query;
}

// The query ends before the nodes that it has asked lose their ranks.
bool add_stacks(const RoundState& state, OpenQuery& query, Peer peer, std::string_view answer) {
  const RoundNode& node = node_at(state, state.node_of.at(peer));
  return query.stacks->add({node.base_rank, node.base_rank + node.hello.local_world_size - 1},
                           answer);
}

}  // namespace

void receive_query(RoundStep& step, Peer peer, const Query& query) {
  NodeQueries& queries = step.state.queries;
  const auto refuse = [&](std::string note) {
    step.send(peer, QueryResult{.number = query.number, .note = std::move(note)});
  };
  if (auto last = queries.fresh_result(query.kind, step.now)) {
    step.actions.emplace_back(SendResult{{{peer, query.number}}, std::move(last)});
    return;
  }
  if (!queries.has_room(query.kind, peer)) return refuse("too many ask at the same time");
  OpenQuery* open = queries.shared(query.kind);
  if (open == nullptr) {
    Result<std::vector<Peer>> peers = peers_asked(step.state, query);
    if (!peers) return refuse(peers.error().message);
    open = &ask(step, query.kind, *std::move(peers), query.question);
  }
  open->requesters.push_back({peer, query.number});
}

void ask_for_stacks(RoundStep& step, std::vector<Peer> peers) {
  ask(step, QueryKind::Stacks, std::move(peers), {});
}

bool receive_answer(RoundStep& step, Peer peer, const NodeAnswer& given) {
  OpenQuery* const query = step.state.queries.take_awaited(given.number, peer);
  if (query == nullptr) return true;
  if (query->stacks) return add_stacks(step.state, *query, peer, given.answer);
  if (query->kind == QueryKind::Status && given.answer.size() > kMostStatusBytes) return false;
  query->answers.emplace(peer, given.answer);
  return true;
}

void lose_answers(RoundState& state, Peer peer, const std::string& reason) {
  state.queries.lose(peer, name_of_peer(state, peer) + ": lost, " + reason);
}

std::optional<EndedQuery> conclude_queries(RoundStep& step) {
  std::optional<EndedQuery> stacks;
  for (OpenQuery& query : step.state.queries.take_ended(step.now)) {
    const auto shared = std::make_shared<const QueryResult>(result_of(step.state, query, step.now));
    step.state.queries.keep(query.kind, shared, step.now);
    if (!query.requesters.empty())
      step.actions.emplace_back(SendResult{std::move(query.requesters), shared});
    if (query.kind == QueryKind::Stacks) stacks = EndedQuery{std::move(query), shared};
  }
  return stacks;
}

JobFacts facts_of(const RoundState& state, Time now) {
  const int in_line = static_cast<int>(state.line.size());
  const bool has_world = !state.nodes.empty();
  const int counted = restarts_counted(state.spec.restart, restarts_of_budget(state), now);
  JobFacts job{.endpoint = state.spec.endpoint,
               .phase = phase_of(state),
               .min_nodes = state.rules.min_nodes,
               .max_nodes = state.rules.max_nodes,
               .joined_nodes = has_world ? state.present_count : in_line,
               .spares = has_world ? in_line : 0,
               .is_preflight = !state.is_checked,
               .world_size = state.has_begun ? state.world_size : 0,
               .restarts = static_cast<int>(state.restarts.size()),
               .restarts_left = std::max(0, state.spec.max_restarts - counted),
               .max_restarts = state.spec.max_restarts,
               .up = since(state.first_world.value_or(state.opened), now),
               .last_failure = state.last_failure};
  if (state.has_begun) {
    job.round = state.round;
    job.round_up = since(state.round_began, now);
  }
  if (!state.failures.empty()) job.last_failure = brief(state.failures.first());
  job.left_out = all_left_out(state.exclusions);
  if (job.left_out.size() > kMostLeftOut) job.left_out.resize(kMostLeftOut);
  job.times = times_of(state, now, false);
  job.slow = state.slow_ranks.found();
  return job;
}

Census census_of(const RoundState& state, const OpenQuery& query, Time now) {
  Census census{.job = facts_of(state, now)};
  std::size_t bytes = 0;
  for (int rank = 0; rank < static_cast<int>(state.nodes.size()); ++rank)
    add(census, bytes, node_of(state, query, rank, now));
  for (const JoinedNode* waiting : line_in_order(state)) {
    CensusNode node{.node_rank = waiting->hello.node_rank,
                    .host = waiting->hello.host,
                    .workers = waiting->hello.local_world_size,
                    .heard = since(waiting->heard, now)};
    add_answer(node, query, waiting->peer);
    add(census, bytes, std::move(node));
  }
  census.missing_ranks = missing_ranks(state, kMostMissingTold);
  return census;
}

}  // namespace drun::rendezvous

#include "tests/sim/etcd_network.h"

#include <algorithm>
#include <utility>

namespace drun::test {

namespace etcd = rendezvous::etcd;

EtcdNetwork::EtcdNetwork(const EtcdWeather& weather, std::uint32_t seed)
    : Simulation(seed), weather_(weather), agents_(static_cast<std::size_t>(weather.agents)) {
  for (int host = kEtcd; host < weather.agents; ++host)
    set_rate(host, 1 + (static_cast<int>(random_() % 201U) - 100) * weather.drift / 10'000.0);
  expire_some();
}

void EtcdNetwork::run_for(Milliseconds time) {
  const Time until = now_ + time;
  while (turn(until)) check_leaders();
  now_ = until;
}

// --- faults

// Leases expire when they are due or up to half a second later.
void EtcdNetwork::expire_some() {
  if (!is_away_) etcd_.expire(local(kEtcd));
  show_change();
  later(between(1, 500), [this] { expire_some(); });
}

void EtcdNetwork::take_etcd_away(bool is_away) {
  if (std::exchange(is_away_, is_away) && !is_away) etcd_.restart(local(kEtcd));
  for (int i = 0; is_away && i < weather_.agents; ++i) end_watch(i, Milliseconds(0));
}

void EtcdNetwork::start(int index) {
  Agent& self = agent(index);
  if (std::exchange(self.is_up, true)) return;
  self.is_frozen = false;
  ++self.life;
  self.is_watching = false;
  self.backlog.clear();
  self.state = etcd::open_campaign({.endpoint = {"host" + std::to_string(index), 4000},
                                    .instance = random_() * std::uint64_t{1000} + 1,
                                    .lease = kLease,
                                    .keep = std::chrono::seconds(600),
                                    .agents = weather_.agents,
                                    .place = "etcd:2379"},
                                   local(index));
  tell(index, etcd::CampaignTick{});
}

void EtcdNetwork::crash(int index) {
  Agent& self = agent(index);
  if (std::exchange(self.is_up, false)) ++self.life;
}

void EtcdNetwork::freeze(int index, bool is_frozen) {
  Agent& self = agent(index);
  if (!self.is_up || self.is_frozen == is_frozen) return;
  self.is_frozen = is_frozen;
  if (is_frozen) return;
  // A thawed process may handle its timers before or after the messages that arrived.
  const auto events = std::exchange(self.backlog, {});
  if (random_() % 2 == 0) tell(index, etcd::CampaignTick{});
  for (const etcd::CampaignEvent& event : events) tell(index, event);
  tell(index, etcd::CampaignTick{});
}

void EtcdNetwork::plan_accidents() {
  const auto some = [this] {
    return static_cast<int>(random_() % static_cast<unsigned>(weather_.agents));
  };
  const auto happen = [this](int count, const std::function<void()>& accident) {
    for (; count > 0; --count) later(between(0, kAccidentsUntil), accident);
  };
  const auto fall = [this](int index) {
    crash(index);
    if (random_() % 4 != 0) later(between(0, 8000), [this, index] { start(index); });
  };
  happen(weather_.crashes, [some, fall] { fall(some()); });
  happen(weather_.leader_kills, [this, fall] {
    if (const auto index = leader()) fall(*index);
  });
  happen(weather_.resigns, [this, fall] {
    const auto index = leader();
    if (!index) return;
    resign(*index);
    later(between(0, 600), [fall, index] { fall(*index); });
  });
  happen(weather_.freezes, [this, some] {
    const int index = random_() % 2 == 0 ? leader().value_or(some()) : some();
    freeze(index, true);
    later(between(50, 15'000), [this, index] { freeze(index, false); });
  });
  happen(weather_.cuts, [this, some] {
    const int index = random_() % 2 == 0 ? leader().value_or(some()) : some();
    cut(index, true);
    later(between(100, 15'000), [this, index] { cut(index, false); });
  });
  happen(weather_.outages, [this] {
    take_etcd_away(true);
    later(between(100, 15'000), [this] { take_etcd_away(false); });
  });
}

void EtcdNetwork::run_all() {
  for (int i = 0; i < weather_.agents; ++i) later(between(0, 3000), [this, i] { start(i); });
  plan_accidents();
  run_for(Milliseconds(kAccidentsUntil + 20'000));
  take_etcd_away(false);
  for (int i = 0; i < weather_.agents; ++i) {
    cut(i, false);
    freeze(i, false);
    start(i);
  }
  run_for(Milliseconds(kLease) * 5);
  // If calls take longer than their timeout, no agent is elected, which is harmless.
  const bool is_slow = weather_.longest_delay_ms > 250 || weather_.lost > 10;
  if (!broken_.empty() || is_slow) return;
  // Lost calls may cost a leader its lease at any time.
  for (int i = 0; i < 200 && weather_.lost > 0 && !leader(); ++i) run_for(Milliseconds(100));
  const auto last = leader();
  require_of(last.has_value(), "there is no leader", -1);
  if (weather_.lost > 0) return;
  run_for(Milliseconds(kLease) * 3);
  require_of(leader() == last, "a leader did not stay", last.value_or(-1));
}

// --- the agents

void EtcdNetwork::tell(int index, const etcd::CampaignEvent& event) {
  Agent& self = agent(index);
  if (!self.is_up) return;
  if (self.is_frozen) {
    if (!std::holds_alternative<etcd::CampaignTick>(event)) self.backlog.push_back(event);
    return;
  }
  for (const etcd::CampaignAction& action : step(self.state, event, local(index)))
    std::visit([this, index](const auto& each) { act(index, each); }, action);
  const long tick = ++self.tick;
  const auto wanted = deadline(self.state);
  if (!wanted) return;
  at_local(index, *wanted, [this, index, tick] {
    if (agent(index).tick == tick) tell(index, etcd::CampaignTick{});
  });
}

// The call fails after the timeout on the agent's clock, even if etcd carries it out later.
void EtcdNetwork::act(int index, const etcd::AskEtcd& ask) {
  Agent& self = agent(index);
  const long life = self.life;
  const auto limit = std::chrono::duration_cast<Milliseconds>(
      std::chrono::duration<double, std::milli>(ask.limit) / rate_of(index));
  later(limit, [this, index, life, number = ask.number] {
    if (agent(index).life == life) tell(index, etcd::EtcdFailed{number, {"no answer"}});
  });
  if (self.is_cut || happens(weather_.lost)) return;
  const bool is_late = happens(weather_.lost);
  const Milliseconds way = is_late ? between(0, 8000) : between(0, weather_.longest_delay_ms);
  later(way, [this, index, life, ask] { carry_out(index, life, ask); });
}

void EtcdNetwork::carry_out(int index, long life, const etcd::AskEtcd& ask) {
  if (is_away_) {
    if (agent(index).life == life)
      tell(index, etcd::EtcdFailed{ask.number, {"connection refused"}});
    return;
  }
  const ModelEtcd::Result result = etcd_.apply(ask.call, local(kEtcd));
  if (std::holds_alternative<etcd::Grant>(ask.call))
    ++load_.grants;
  else if (std::holds_alternative<etcd::Revoke>(ask.call))
    ++load_.revokes;
  else if (!std::holds_alternative<etcd::Renew>(ask.call))
    ++load_.transactions;
  if (std::holds_alternative<etcd::Claim>(ask.call)) ++load_.claims;
  show_change();
  if (agent(index).is_cut || happens(weather_.lost)) return;
  later(between(0, weather_.longest_delay_ms), [this, index, life, number = ask.number, result] {
    if (agent(index).life != life || agent(index).is_cut) return;
    if (const auto* failed = std::get_if<etcd::Failed>(&result))
      return tell(index, etcd::EtcdFailed{number, *failed});
    tell(index, etcd::EtcdAnswered{number, std::get<etcd::Answer>(result)});
  });
}

// Etcd confirms the watch, and reports the last change if it is newer than the agent's last read.
void EtcdNetwork::act(int index, const etcd::WatchLeader& watch) {
  Agent& self = agent(index);
  ++load_.watches;
  self.watch_number = watch.number;
  self.watch_report = now_;
  const bool is_refused = is_away_ || self.is_cut || happens(weather_.lost + weather_.watch_fails);
  self.is_watching = true;
  ++self.watch;
  if (is_refused) return end_watch(index, Milliseconds(5000));
  report(index, {.revision = etcd_.sight().revision});
  if (shown_at_ >= watch.from) report(index, {shown_at_, true, shown_leader_});
}

void EtcdNetwork::report(int index, const etcd::WatchMessage& message) {
  Agent& self = agent(index);
  self.watch_report = std::max(self.watch_report, now_ + between(0, weather_.longest_delay_ms));
  at(self.watch_report, [this, index, message, life = self.life, watch = self.watch] {
    const Agent& same = agent(index);
    if (same.life != life || same.watch != watch) return;
    if (same.is_cut || happens(weather_.lost)) return end_watch(index, Milliseconds(15'000));
    tell(index, etcd::WatchReported{same.watch_number, message});
  });
}

void EtcdNetwork::end_watch(int index, Milliseconds within) {
  Agent& self = agent(index);
  if (!std::exchange(self.is_watching, false)) return;
  const int most = static_cast<int>(within.count());
  const long watch = ++self.watch;
  later(between(0, most), [this, index, watch, life = self.life, number = self.watch_number] {
    if (agent(index).life == life && agent(index).watch == watch)
      tell(index, etcd::WatchEnded{number, "connection closed"});
  });
}

void EtcdNetwork::show_change() {
  if (etcd_.sight().leader == shown_leader_) return;
  shown_leader_ = etcd_.sight().leader;
  shown_at_ = etcd_.sight().revision;
  for (int i = 0; i < weather_.agents; ++i) {
    if (agent(i).is_up && agent(i).is_watching) report(i, {shown_at_, true, shown_leader_});
  }
}

void EtcdNetwork::act(int index, const rendezvous::Leading& leading) {
  ++leads_;
  led_since_ = now_;
  require_of(leading.term > last_term_, "a term was used twice", index);
  last_term_ = std::max(last_term_, leading.term);
  const int last_round = round_of_.empty() ? 0 : round_of_.rbegin()->first;
  require_of(leading.before.rounds >= last_round, "a leader does not know the rounds", index);
  require_of(leading.before.restarts == leading.before.rounds / 2, "restarts are forgotten", index);
  agent(index).rounds = leading.before.rounds;
  agent(index).is_wanting = false;
  want_rounds(index, leading.term);
}

void EtcdNetwork::want_rounds(int index, std::uint64_t term) {
  later(between(1, 2000), [this, index, term, life = agent(index).life] {
    Agent& self = agent(index);
    const bool leads = self.is_up && !self.is_frozen && self.life == life &&
                       is_leading(self.state, local(index)) && self.state.own_term == term;
    if (!leads) return;
    if (!std::exchange(self.is_wanting, true))
      tell(index,
           etcd::RecordWanted{{.rounds = self.rounds + 1, .restarts = (self.rounds + 1) / 2}});
    want_rounds(index, term);
  });
}

void EtcdNetwork::act(int index, const rendezvous::RoundKnown& kept) {
  Agent& self = agent(index);
  require_of(is_leading(self.state, local(index)), "a round begins without a lead", index);
  require_of(self.is_wanting && kept.rounds == self.rounds + 1,
             "a record was kept without a request", index);
  require_of(round_of_.emplace(kept.rounds, self.state.own_term).second,
             "round " + std::to_string(kept.rounds) + " begins twice", index);
  self.rounds = kept.rounds;
  self.is_wanting = false;
}

std::optional<int> EtcdNetwork::leader() const {
  for (int i = 0; i < weather_.agents; ++i) {
    const Agent& self = agents_[static_cast<std::size_t>(i)];
    if (self.is_up && !self.is_frozen && is_leading(self.state, local(i))) return i;
  }
  return std::nullopt;
}

void EtcdNetwork::require_of(bool is_good, const std::string& what, int agent) {
  if (!is_good)
    require(false, what + " (agent " + std::to_string(agent) + ", after " + since_start() + ")");
}

void EtcdNetwork::check_leaders() {
  int leaders = 0;
  for (int i = 0; i < weather_.agents; ++i) {
    const Agent& self = agent(i);
    if (self.is_up && !self.is_frozen && is_leading(self.state, local(i))) ++leaders;
  }
  require_of(leaders < 2, "two lead at a time", leader().value_or(-1));
}

}  // namespace drun::test

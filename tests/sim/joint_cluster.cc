#include "tests/sim/joint_cluster.h"

#include <algorithm>
#include <utility>

namespace drun::test {

using namespace rendezvous;

JointCluster::JointCluster(const JointWeather& weather, std::uint32_t seed)
    : Simulation(seed),
      ElectionNetwork({.seats = weather.seats,
                       .drift = weather.drift,
                       .longest_delay_ms = weather.longest_delay_ms},
                      seed),
      SimulatedAgents(weather, weather.longest_delay_ms),
      weather_(weather) {
  for (int host = 0; host < weather.hosts; ++host)
    offices_.push_back(std::make_unique<Office>(*this, host));
  for (int host = weather.seats; host < weather.hosts; ++host)
    set_rate(host, 1 + (static_cast<int>(random_() % 201U) - 100) * weather.drift / 10'000.0);
  for (int host = 0; host < weather.hosts; ++host) {
    const bool is_late = host >= weather.hosts - weather.late_hosts;
    later(is_late ? between(5000, kAccidentsUntil) : between(0, 3000),
          [this, host] { start_host(host); });
  }
  plan_accidents();
  later(Milliseconds(kCalmFrom), [this] { calm(); });
}

void JointCluster::run() {
  const Time horizon = now_ + std::chrono::hours(1);
  while (turn(horizon)) check_leaders();
  require(is_idle(), "it does not end");
}

// --- hosts

MemberSpec JointCluster::member_spec(int host) const {
  MemberSpec spec;
  JoinSpec& join = spec.join;
  join.node_count = weather_.max_nodes;
  join.elastic = ElasticSpec{.min_nodes = weather_.min_nodes};
  join.local_world_size = 1 + host % 3;
  for (int seat = 0; seat < weather_.seats; ++seat)
    join.seats.push_back({"host" + std::to_string(seat), 29400});
  join.is_coordinator = has_seat(host);
  if (has_seat(host)) join.seat = static_cast<std::size_t>(host);
  join.endpoint = join.seats[join.seat.value_or(0)];
  join.max_restarts = weather_.max_restarts;
  join.restart.pause = Milliseconds(weather_.pause_ms);
  join.preflight = weather_.preflight;
  join.join_timeout = kJoinTimeout;
  join.heartbeat_timeout = kHeartbeatTimeout;
  return spec;
}

void JointCluster::start_host(int host) {
  if (living(host) != nullptr || office(host).is_up() || !ends_.empty()) return;
  trace(host, "starts");
  if (has_seat(host)) office(host).open();
  start_agent(host, member_spec(host));
}

void JointCluster::come_back(int host) {
  if (percent() >= weather_.comeback_chance) return;
  later(between(100, 8000), [this, host] { start_host(host); });
}

int JointCluster::dialled(const Agent& agent) const {
  return std::stoi(agent.member.spec.join.endpoint.host.substr(4));
}

bool JointCluster::listens(int host) const {
  return has_seat(host) && offices_[static_cast<std::size_t>(host)]->is_up();
}

// As the agent does: the seat closes with its agent unless it still has something to report.
void JointCluster::agent_ended(std::size_t agent) {
  const int host = agents_[agent].host;
  const Ending& ending = agents_[agent].outcome->ending;
  const bool has_left = std::holds_alternative<Interrupted>(ending);
  if (std::holds_alternative<NodeLost>(ending) || has_left) come_back(host);
  if (!has_seat(host)) return;
  later(Milliseconds(0), [this, host] {
    if (living(host) == nullptr) office(host).agent_ended();
  });
}

bool JointCluster::is_frozen(int host) {
  const Agent* const agent = living(host);
  return agent != nullptr && agent->is_frozen;
}

// --- faults

void JointCluster::happen(int count, const std::function<void()>& accident) {
  for (; count > 0; --count) later(between(0, kAccidentsUntil), accident);
}

void JointCluster::plan_accidents() {
  happen(weather_.crashes, [this] { fall(some_host()); });
  happen(weather_.leader_crashes, [this] { fall(leader()); });
  happen(weather_.blinks, [this] { blink(); });
  happen(weather_.splits, [this] { part_network(); });
  happen(weather_.cuts, [this] { cut_way(); });
  happen(weather_.freezes, [this] { stand_still(some_host()); });
  happen(weather_.leader_freezes, [this] { stand_still(leader()); });
  happen(weather_.drops, [this] {
    const int host = some_host();
    Agent* const agent = living(host);
    if (agent == nullptr || agent->is_frozen) return;
    note_trouble(host, std::nullopt, Milliseconds(10'000));
    break_link(*agent);
  });
  happen(weather_.leaves, [this] { leave(some_host()); });
  happen(weather_.leader_leaves, [this] { leave(leader()); });
  for (int host = 0; host < weather_.hosts; ++host) {
    if (percent() >= weather_.question_chance) continue;
    later(between(0, kAccidentsUntil), [this, host] {
      if (Agent* const agent = living(host)) ask(index_of(*agent));
    });
  }
}

void JointCluster::note_trouble(int host, std::optional<int> other, Milliseconds time) {
  troubles_.push_back({host, other, now_, now_ + time});
}

void JointCluster::crash_host(int host) {
  trace(host, "crashes");
  note_trouble(host, std::nullopt, Milliseconds(20'000));
  if (Agent* const agent = living(host)) kill(*agent);
  if (has_seat(host)) office(host).close();
}

// With `silence_chance`, its routes are cut first, so that no other host sees the connection close.
void JointCluster::fall(std::optional<int> host) {
  if (!host) return;
  const bool is_silent = percent() < weather_.silence_chance;
  for (int other = 0; is_silent && other < weather_.hosts; ++other) {
    if (other == *host) continue;
    cut(*host, other);
    later(Milliseconds(kLease * 3), [this, host, other] {
      cut_.erase({*host, other});
      cut_.erase({other, *host});
    });
  }
  crash_host(*host);
  come_back(*host);
}

void JointCluster::leave(std::optional<int> host) {
  Agent* const agent = host ? living(*host) : nullptr;
  if (agent == nullptr) return;
  trace(*host, "gets a signal");
  agent->was_signaled = true;
  tell_member(index_of(*agent), OwnSignal{15});
}

void JointCluster::blink() {
  const int host = some_host();
  if (living(host) == nullptr) return;
  crash_host(host);
  later(between(1, 100), [this, host] { start_host(host); });
}

void JointCluster::part_network() {
  std::set<int> group;
  for (int host = 0; host < weather_.hosts; ++host) {
    if (random_() % 2 == 0) group.insert(host);
  }
  const Milliseconds time = between(100, 14'000);
  for (const int one : group) {
    for (int other = 0; other < weather_.hosts; ++other) {
      if (group.contains(other)) continue;
      trace(one, "is parted from host" + std::to_string(other));
      cut(one, other);
      note_trouble(one, other, time + Milliseconds(2000));
      later(time, [this, one, other] {
        cut_.erase({one, other});
        cut_.erase({other, one});
      });
    }
  }
}

void JointCluster::cut_way() {
  const std::pair<int, int> way{some_host(), some_host()};
  if (way.first == way.second) return;
  const Milliseconds time = between(100, 14'000);
  cut_.insert(way);
  trace(way.first, "does not reach host" + std::to_string(way.second));
  note_trouble(way.first, way.second, time + Milliseconds(2000));
  later(time, [this, way] { cut_.erase(way); });
}

void JointCluster::stand_still(std::optional<int> host) {
  Agent* const agent = host ? living(*host) : nullptr;
  if (agent == nullptr || std::exchange(agent->is_frozen, true)) return;
  const Milliseconds time = between(50, 14'000);
  trace(*host, "stands still for " + std::to_string(time.count()) + " ms");
  note_trouble(*host, std::nullopt, time);
  if (has_seat(*host)) freeze(*host, true);
  later(time, [this, host, index = index_of(*agent)] {
    if (agents_[index].is_alive && agents_[index].is_frozen) go_on(*host);
  });
}

// The events that arrived and the expired timers are handled in random order.
void JointCluster::go_on(int host) {
  Agent* const agent = living(host);
  if (agent == nullptr) return;
  agent->is_frozen = false;
  std::vector<std::function<void()>> actions{[this, i = index_of(*agent)] { thaw(i); }};
  if (has_seat(host)) {
    wake(host);
    actions.emplace_back([this, host] { catch_up(host); });
    actions.emplace_back([this, host] { office(host).hear_backlog(); });
  }
  std::shuffle(actions.begin(), actions.end(), random_);
  for (const auto& action : actions) action();
}

// Ends all faults and starts every seat's host that is down, unless the job has ended.
void JointCluster::calm() {
  cut_.clear();
  for (int host = 0; host < weather_.hosts; ++host) {
    if (is_frozen(host)) go_on(host);
    if (has_seat(host)) start_host(host);
  }
}

JointWeather random_joint_weather(std::uint32_t seed) {
  std::mt19937 random(seed ^ 0x5eedU);
  const auto up_to = [&random](int most) {
    return static_cast<int>(random() % static_cast<unsigned>(most + 1));
  };
  JointWeather weather;
  weather.seats = 3 + up_to(2);
  weather.hosts = std::max(weather.seats, up_to(9) == 0 ? 3 + up_to(17) : 3 + up_to(4));
  weather.max_nodes = 2 + up_to(weather.hosts - 1);
  weather.min_nodes = 1 + up_to(std::min(weather.max_nodes - 1, 3));
  weather.late_hosts = up_to(weather.hosts - weather.seats);
  weather.max_restarts = up_to(3);
  weather.failure_chance = up_to(1) * up_to(20);
  const bool has_crashes = up_to(3) > 0;
  weather.crashes = has_crashes ? up_to(3) : 0;
  weather.leader_crashes = has_crashes ? up_to(3) : 0;
  weather.blinks = has_crashes ? up_to(2) : 0;
  weather.comeback_chance = up_to(100);
  weather.silence_chance = up_to(1) * up_to(60);
  weather.leaves = up_to(7) == 0 ? 1 : 0;
  weather.leader_leaves = up_to(3) == 0 ? 1 + up_to(1) : 0;
  weather.drops = up_to(2);
  weather.splits = up_to(2);
  weather.cuts = up_to(3);
  weather.freezes = up_to(2);
  weather.leader_freezes = up_to(2);
  weather.drift = up_to(5);
  weather.longest_delay_ms = up_to(9) == 0 ? 1 + up_to(300) : 1 + up_to(60);
  weather.hang_chance = up_to(4) == 0 ? up_to(20) : 0;
  weather.mute_chance = up_to(1) * up_to(20);
  weather.question_chance = up_to(1) * up_to(30);
  weather.pause_ms = up_to(1) * up_to(2000);
  // A failed probe excludes its node, which may remove a seat.
  weather.preflight = weather.failure_chance + weather.hang_chance == 0 && up_to(2) == 0;
  return weather;
}

}  // namespace drun::test

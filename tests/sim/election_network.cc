#include "tests/sim/election_network.h"

#include <algorithm>

namespace drun::test {

using namespace rendezvous;

ElectionNetwork::ElectionNetwork(const ElectionWeather& weather, std::uint32_t seed)
    : Simulation(seed), weather_(weather), seats_(static_cast<std::size_t>(weather.seats)) {
  for (int seat = 0; seat < weather.seats; ++seat)
    set_rate(seat, 1 + (static_cast<int>(random_() % 201U) - 100) * weather.drift / 10'000.0);
}

void ElectionNetwork::run_for(Milliseconds time) {
  const Time until = now_ + time;
  while (turn(until)) check_leaders();
  now_ = until;
}

// --- faults

void ElectionNetwork::start(int index) {
  Seat& self = seat(index);
  if (std::exchange(self.is_up, true)) return;
  self.is_frozen = false;
  ++self.life;
  self.backlog.clear();
  self.state = open_election({.run_id = "sim",
                              .seats = "a,b,c",
                              .seat = index,
                              .seat_count = weather_.seats,
                              .instance = random_() * std::uint64_t{1000} + 1,
                              .lease = kLease});
  tell(index, ElectionStart{});
}

void ElectionNetwork::crash(int index) {
  Seat& self = seat(index);
  if (!std::exchange(self.is_up, false)) return;
  was_crash_ = true;
  ++self.life;
  self.lines.clear();
  self.unsent.clear();
  for (const auto& [number, line] : lines_) {
    if (line.to != index || is_cut(index, line.from)) continue;
    later(between(0, weather_.longest_delay_ms), [this, number = number] {
      const Line& lost = lines_[number];
      Seat& other = seat(lost.from);
      if (other.life != lost.from_life || is_living(lost)) return;
      const auto own = other.lines.find(lost.to);
      if (own == other.lines.end() || own->second != number) return;
      other.lines.erase(own);
      tell(lost.from, SeatFailed{lost.to});
    });
  }
}

void ElectionNetwork::freeze(int index, bool is_frozen) {
  Seat& self = seat(index);
  if (!self.is_up || self.is_frozen == is_frozen) return;
  self.is_frozen = is_frozen;
  if (!is_frozen) catch_up(index);
}

// A thawed process may handle its timers before or after the messages that arrived.
void ElectionNetwork::catch_up(int index) {
  const auto events = std::exchange(seat(index).backlog, {});
  if (random_() % 2 == 0) tell(index, ElectionTick{});
  for (const ElectionEvent& event : events) tell(index, event);
  tell(index, ElectionTick{});
}

void ElectionNetwork::split(const std::set<int>& group) {
  cut_.clear();
  for (int from = 0; from < weather_.seats; ++from) {
    for (int to = 0; to < weather_.seats; ++to) {
      if (group.contains(from) != group.contains(to)) cut_.insert({from, to});
    }
  }
}

void ElectionNetwork::plan_accidents() {
  const auto some = [this] {
    return static_cast<int>(random_() % static_cast<unsigned>(weather_.seats));
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
  happen(weather_.blinks, [this, some] {
    const int index = some();
    if (!is_up(index)) return;
    crash(index);
    later(between(0, 100), [this, index] { start(index); });
  });
  happen(weather_.splits, [this] {
    std::set<int> group;
    for (int i = 0; i < weather_.seats; ++i) {
      if (random_() % 2 == 0) group.insert(i);
    }
    split(group);
    later(between(100, 12'000), [this] { heal(); });
  });
  happen(weather_.cuts, [this, some] {
    const std::pair<int, int> way{some(), some()};
    cut_.insert(way);
    later(between(100, 12'000), [this, way] { cut_.erase(way); });
  });
  happen(weather_.freezes, [this, some] {
    const int index = some();
    freeze(index, true);
    later(between(50, 9000), [this, index] { freeze(index, false); });
  });
}

void ElectionNetwork::run_all() {
  for (int i = 0; i < weather_.seats; ++i) later(between(0, 3000), [this, i] { start(i); });
  plan_accidents();
  run_for(Milliseconds(kAccidentsUntil + 20'000));
  // From here on one majority is up and connected. The other seats keep their state but are cut
  // off.
  std::vector<int> order;
  for (int i = 0; i < weather_.seats; ++i) order.push_back(i);
  std::shuffle(order.begin(), order.end(), random_);
  const int majority = weather_.seats / 2 + 1;
  std::set<int> together(order.begin(), order.begin() + majority);
  split(together);
  for (const int index : together) {
    freeze(index, false);
    start(index);
  }
  run_for(kLease * 4);
  // If replies take longer than a candidate waits, no seat is elected, which is harmless.
  const bool is_slow = 4 * Milliseconds(weather_.longest_delay_ms) > kLease / 4;
  if (!broken_.empty() || is_slow) return;
  const auto last = leader();
  require_of(last && together.contains(*last), "a connected majority has no leader",
             last.value_or(-1));
  run_for(kLease * 2);
  require_of(leader() == last, "a leader with a connected majority did not stay",
             last.value_or(-1));
}

// --- the seats

void ElectionNetwork::tell(int index, const ElectionEvent& event) {
  Seat& self = seat(index);
  if (!self.is_up) return;
  if (self.is_frozen) {
    if (!std::holds_alternative<ElectionTick>(event)) self.backlog.push_back(event);
    return;
  }
  for (const ElectionAction& action : step(self.state, event, local(index)))
    std::visit([this, index](const auto& each) { act(index, each); }, action);
  const long tick = ++self.tick;
  const auto wanted = deadline(self.state);
  if (!wanted) return;
  at_local(index, *wanted, [this, index, tick] {
    if (seat(index).tick == tick) tell(index, ElectionTick{});
  });
}

bool ElectionNetwork::leads(int index) {
  const Seat& self = seat(index);
  if (!self.is_up || self.is_frozen) return false;
  const auto wanted = deadline(self.state);
  if (wanted && *wanted <= local(index)) tell(index, ElectionTick{});
  return is_leading(self.state, local(index));
}

bool ElectionNetwork::is_living(const Line& line) const {
  return seats_[static_cast<std::size_t>(line.from)].life == line.from_life &&
         seats_[static_cast<std::size_t>(line.to)].life == line.to_life;
}

void ElectionNetwork::act(int index, const AskSeat& ask) {
  Seat& self = seat(index);
  if (const auto line = self.lines.find(ask.seat); line != self.lines.end())
    return carry(line->second, ask.ballot);
  const bool is_dialling = self.unsent.contains(ask.seat);
  self.unsent[ask.seat] = ask.ballot;
  if (!is_dialling) dial(index, ask.seat);
}

void ElectionNetwork::act(int index, const HangUp& hang) {
  seat(index).lines.erase(hang.seat);
  seat(index).unsent.erase(hang.seat);
}

// Across a cut the kernel keeps trying to connect. A frozen seat does not notice that the
// connection was made.
void ElectionNetwork::dial(int from, int to) {
  later(between(0, 2 * weather_.longest_delay_ms), [this, from, to, life = seat(from).life] {
    Seat& self = seat(from);
    if (self.life != life || !self.unsent.contains(to)) return;
    if (self.is_frozen || is_cut(from, to) || is_cut(to, from)) {
      later(Milliseconds(500), [this, from, to, life] {
        if (seat(from).life == life && seat(from).unsent.contains(to)) dial(from, to);
      });
      return;
    }
    if (!seat(to).is_up) {
      self.unsent.erase(to);
      return tell(from, SeatFailed{to});
    }
    lines_[++last_line_] = {from, to, self.life, seat(to).life, now_};
    const Caller line = last_line_;
    tell(from, SeatLinked{to});  // may send another ballot instead, or hang up
    const auto unsent = self.unsent.find(to);
    if (unsent == self.unsent.end()) return;
    const Ballot ballot = unsent->second;
    self.unsent.erase(unsent);
    self.lines[to] = line;
    carry(line, ballot);
  });
}

void ElectionNetwork::carry(Caller number, Ballot ballot) {
  Line& line = lines_[number];
  if (is_cut(line.from, line.to)) return;
  line.free = std::max(line.free, now_ + between(0, weather_.longest_delay_ms));
  at(line.free, [this, number, ballot = std::move(ballot)] {
    const Line& arrived = lines_[number];
    if (is_living(arrived) && !is_cut(arrived.from, arrived.to))
      tell(arrived.to, BallotCame{number, ballot});
  });
}

void ElectionNetwork::act(int, const AnswerBallot& answer) {
  const Line& line = lines_[answer.caller];
  if (is_cut(line.to, line.from)) return;
  later(between(0, weather_.longest_delay_ms), [this, answer] {
    const Line& arrived = lines_[answer.caller];
    const auto own = seat(arrived.from).lines.find(arrived.to);
    const bool is_used = own != seat(arrived.from).lines.end() && own->second == answer.caller;
    if (is_used && is_living(arrived) && !is_cut(arrived.to, arrived.from))
      tell(arrived.from, VoteCame{arrived.to, answer.vote});
  });
}

void ElectionNetwork::act(int index, const Leading& leading) {
  ++leads_;
  led_since_ = now_;
  // After crashes, terms may start low again if all seats that knew the last term have restarted.
  require_of(was_crash_ || leading.term > last_term_, "a term was used twice", index);
  last_term_ = std::max(last_term_, leading.term);
  const int last_round = round_of_.empty() ? -1 : round_of_.rbegin()->first;
  require_of(was_crash_ || leading.before.rounds > last_round, "a leader does not know the rounds",
             index);
  on_leading(index, leading);
}

void ElectionNetwork::want_rounds(int index, std::uint64_t term) {
  later(between(1, 2000), [this, index, term, life = seat(index).life] {
    const Seat& self = seat(index);
    const bool leads = self.is_up && !self.is_frozen && self.life == life &&
                       is_leading(self.state, local(index)) && self.state.own_term == term;
    if (!leads) return;
    if (self.state.wanted_rounds == self.state.known_rounds)
      tell(index, RoundWanted{self.state.known_rounds + 1});
    want_rounds(index, term);
  });
}

void ElectionNetwork::act(int index, const RoundKnown& known) {
  const auto term = seat(index).state.own_term;
  const bool is_new = round_of_.emplace(known.rounds - 1, std::pair(index, term)).second;
  require_of(was_crash_ || is_new, "a round's number was used twice", index);
  on_round_known(index, known.rounds);
}

std::optional<int> ElectionNetwork::leader() const {
  for (int i = 0; i < weather_.seats; ++i) {
    const Seat& self = seats_[static_cast<std::size_t>(i)];
    if (self.is_up && is_leading(self.state, local(i))) return i;
  }
  return std::nullopt;
}

void ElectionNetwork::check_leaders() {
  int count = 0;
  for (int i = 0; i < weather_.seats; ++i) {
    const Seat& self = seat(i);
    count += self.is_up && is_leading(self.state, local(i)) ? 1 : 0;
  }
  require_of(count <= 1, "two lead at a time", leader().value_or(-1));
}

void ElectionNetwork::require_of(bool is_good, const std::string& what, int index) {
  if (!is_good)
    require(false, what + " (seat " + std::to_string(index) + ", after " + since_start() + ")");
}

}  // namespace drun::test

// The seats of one job in one process, with clocks that do not run alike, on a network that delays,
// is cut and heals. Seats crash, start again, stand still. That two never lead at a time is checked
// after each event; the first thing that is wrong is kept in `broken`.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/election/election.h"

namespace drun::test {

// Counts are of accidents at random moments of the first 40 s.
struct ElectionWeather {
  int seats = 3;
  int crashes = 0;  // each is started again, or not
  int leader_kills = 0;
  int blinks = 0;   // a seat is started again at once
  int splits = 0;   // the network falls in two for a while
  int cuts = 0;     // of one way between two seats, for a while
  int freezes = 0;  // a seat stands still for a while
  int drift = 0;    // per cent that a clock is too fast or too slow, at most
  int longest_delay_ms = 40;
};

class ElectionNetwork {
 public:
  using Time = rendezvous::Time;
  using Milliseconds = std::chrono::milliseconds;
  static constexpr Milliseconds kLease{3000};

  ElectionNetwork(const ElectionWeather& weather, std::uint32_t seed);

  void start(int seat);
  void crash(int seat);
  void freeze(int seat, bool is_frozen);
  // Ways between the two groups are cut; all others are not.
  void split(const std::set<int>& group);
  void cut(int one, int other) { cut_.insert({{one, other}, {other, one}}); }
  void heal() { cut_.clear(); }
  // What is under way by then has happened.
  void run_for(Milliseconds time);
  // All accidents of the weather, then a while in which a majority is up and connected.
  void run_all();

  // Who leads at this moment.
  std::optional<int> leader() const;
  bool is_up(int seat) const { return seats_[static_cast<std::size_t>(seat)].is_up; }
  Time now() const { return now_; }
  // When a seat last came to lead.
  Time led_since() const { return led_since_; }
  int leads() const { return leads_; }
  int rounds() const { return static_cast<int>(round_of_.size()); }
  const std::string& broken() const { return broken_; }

 private:
  static constexpr int kAccidentsUntil = 40'000;

  struct Seat {
    bool is_up = false;
    bool is_frozen = false;
    double rate = 1;
    long life = 0;
    long tick = 0;
    rendezvous::ElectionState state;
    std::vector<rendezvous::ElectionEvent> backlog;
    std::map<int, rendezvous::Caller> lines;  // to others
    std::map<int, rendezvous::Ballot> unsent;
  };
  struct Line {
    int from = 0;
    int to = 0;
    long from_life = 0;
    long to_life = 0;
    Time free;
  };

  Seat& seat(int index) { return seats_[static_cast<std::size_t>(index)]; }
  Time local(const Seat& seat) const;
  Milliseconds between(int low, int high);
  void at(Time when, std::function<void()> deed);
  void later(Milliseconds delay, std::function<void()> deed) { at(now_ + delay, std::move(deed)); }
  bool is_cut(int from, int to) const { return cut_.contains({from, to}); }
  bool is_living(const Line& line) const;
  void plan_accidents();
  void tell(int index, const rendezvous::ElectionEvent& event);
  void act(int index, const rendezvous::AskSeat& ask);
  void act(int index, const rendezvous::HangUp& hang);
  void act(int index, const rendezvous::AnswerBallot& answer);
  void act(int index, const rendezvous::RefuseBallot&) {
    require(false, "a ballot is refused", index);
  }
  void act(int index, const rendezvous::Leading& leading);
  void act(int, const rendezvous::LeadLost&) {}
  void act(int, const rendezvous::Following&) {}
  void act(int, const rendezvous::Vacant&) {}
  void act(int index, const rendezvous::RoundKnown& known);
  void act(int, const rendezvous::ElectionLog&) {}
  void dial(int from, int to);
  void carry(rendezvous::Caller line, rendezvous::Ballot ballot);
  void want_rounds(int index, std::uint64_t term);
  void require(bool is_good, const std::string& what, int seat);
  void check_leaders();

  struct Pending {
    Time when;
    long number = 0;
    std::function<void()> deed;
    bool operator<(const Pending& other) const {
      return when != other.when ? when > other.when : number > other.number;
    }
  };

  const ElectionWeather weather_;
  std::mt19937 random_;
  Time now_{std::chrono::hours(1)};
  long last_number_ = 0;
  std::priority_queue<Pending> pending_;
  std::vector<Seat> seats_;
  std::map<rendezvous::Caller, Line> lines_;
  rendezvous::Caller last_line_ = 0;
  std::set<std::pair<int, int>> cut_;
  std::map<int, std::pair<int, std::uint64_t>> round_of_;  // number: seat and term
  std::uint64_t last_term_ = 0;
  Time led_since_;
  int leads_ = 0;
  bool was_crash_ = false;
  std::string broken_;
};

}  // namespace drun::test

// Simulates the seats of one job in one process, with clocks that run at different rates, on a
// network that delays messages, is cut and heals. Seats crash, restart and freeze. After each event
// it checks that at most one seat leads. `broken` holds the first violation.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/leader/election.h"
#include "tests/sim/simulation.h"

namespace drun::test {

// Counts are of faults at random moments in the first 40 s.
struct ElectionWeather {
  int seats = 3;
  int crashes = 0;  // three in four restart within 8 s
  int leader_kills = 0;
  int blinks = 0;   // a seat crashes and restarts within 100 ms
  int splits = 0;   // the network is partitioned into two groups for a while
  int cuts = 0;     // one direction between two seats is cut for a while
  int freezes = 0;  // a seat is frozen for a while
  int drift = 0;    // maximum clock error in percent, fast or slow
  int longest_delay_ms = 40;
};

class ElectionNetwork : public virtual Simulation {
 public:
  static constexpr Milliseconds kLease{3000};

  ElectionNetwork(const ElectionWeather& weather, std::uint32_t seed);
  virtual ~ElectionNetwork() = default;

  void start(int seat);
  void crash(int seat);
  void freeze(int seat, bool is_frozen);
  // Cuts all routes between the two groups, and no others.
  void split(const std::set<int>& group);
  void cut(int one, int other) { cut_.insert({{one, other}, {other, one}}); }
  void heal() { cut_.clear(); }
  // Runs all events of the next `time`.
  void run_for(Milliseconds time);
  // Runs all planned faults, then a period in which a majority is up and connected.
  void run_all();

  // The seat that leads now.
  std::optional<int> leader() const;
  bool is_up(int seat) const { return seats_[static_cast<std::size_t>(seat)].is_up; }
  // When a seat last became leader.
  Time led_since() const { return led_since_; }
  int leads() const { return leads_; }
  int rounds() const { return static_cast<int>(round_of_.size()); }

 protected:
  // Hooks for the agent of a seat. By default an agent that leads starts rounds.
  virtual void on_leading(int index, const rendezvous::Leading& leading) {
    want_rounds(index, leading.term);
  }
  virtual void on_lead_lost(int) {}
  virtual void on_following(int, const rendezvous::SeatFollowed&) {}
  virtual void on_vacant(int) {}
  virtual void on_round_known(int, int) {}
  virtual void on_resigned(int) {}

  void tell(int index, const rendezvous::ElectionEvent& event);
  // Unfreezes a seat without delivering the events that arrived meanwhile.
  void wake(int index) { seat(index).is_frozen = false; }
  void catch_up(int index);
  // Handles an expired timer first, as election_driver.h does.
  bool leads(int index);
  const rendezvous::ElectionState& election(int index) const {
    return seats_[static_cast<std::size_t>(index)].state;
  }
  bool is_cut(int from, int to) const { return cut_.contains({from, to}); }
  void check_leaders();

  std::set<std::pair<int, int>> cut_;  // cut one-way routes; the first hosts have the seats

 private:
  static constexpr int kAccidentsUntil = 40'000;

  struct Seat {
    bool is_up = false;
    bool is_frozen = false;
    long life = 0;
    long tick = 0;
    rendezvous::ElectionState state;
    std::vector<rendezvous::ElectionEvent> backlog;
    std::map<int, rendezvous::Caller> lines;  // to other seats
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
  bool is_living(const Line& line) const;
  void plan_accidents();
  void act(int index, const rendezvous::AskSeat& ask);
  void act(int index, const rendezvous::HangUp& hang);
  void act(int index, const rendezvous::AnswerBallot& answer);
  void act(int index, const rendezvous::RefuseBallot&) {
    require_of(false, "a ballot is refused", index);
  }
  void act(int index, const rendezvous::Leading& leading);
  void act(int index, const rendezvous::LeadLost&) { on_lead_lost(index); }
  void act(int index, const rendezvous::SeatFollowed& following) { on_following(index, following); }
  void act(int index, const rendezvous::Vacant&) { on_vacant(index); }
  void act(int index, const rendezvous::RoundKnown& known);
  void act(int index, const rendezvous::Resigned&) { on_resigned(index); }
  void dial(int from, int to);
  void carry(rendezvous::Caller line, rendezvous::Ballot ballot);
  void want_rounds(int index, std::uint64_t term);
  void require_of(bool is_good, const std::string& what, int seat);

  const ElectionWeather weather_;
  std::vector<Seat> seats_;
  std::map<rendezvous::Caller, Line> lines_;
  rendezvous::Caller last_line_ = 0;
  std::map<int, std::pair<int, std::uint64_t>> round_of_;  // round number to seat and term
  std::uint64_t last_term_ = 0;
  Time led_since_;
  int leads_ = 0;
  bool was_crash_ = false;
};

}  // namespace drun::test

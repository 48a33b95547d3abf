// core. Those who have connected and have not shown yet who they are: how many there may be, how
// long they may stay, and who goes when there are too many.
//
// Shape:   when one more comes than may be there, the origin (address, or IPv6 network) with the
//          most guests loses its oldest. So whoever says what is expected within a moment gets in,
//          however many others do not, and a crowd from one place is at its own expense.
// Cost:    O(log n) a call, whoever comes.
// Units:   `now` is the steady clock of the turn; never goes back.
// Owner:   a value, beside the connections it counts.   Thread: any, one at a time.
// Errors:  none.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

namespace drun::rendezvous {

class Lobby {
 public:
  using Guest = std::uint64_t;
  using Time = std::chrono::steady_clock::time_point;

  Lobby(std::size_t most, std::chrono::milliseconds patience) : most_(most), patience_(patience) {}

  // Guests' numbers ascend. Gives who has to go for it, who may not be itself; it has left already.
  std::optional<Guest> arrive(Guest guest, std::string origin, Time now);
  // Shown who it is, or gone. Nobody, if it is not there.
  void leave(Guest guest);
  // Has been there for too long, and has left already; one a call, nobody when all are in time.
  std::optional<Guest> overdue(Time now);
  // As if one too many had come.
  std::optional<Guest> evict();

  bool has(Guest guest) const { return guests_.contains(guest); }
  std::size_t size() const { return guests_.size(); }
  // When the next one is overdue.
  std::optional<Time> deadline() const;

 private:
  struct Place {
    std::string origin;
    Time until;
  };
  void count(const std::string& origin, std::size_t before, std::size_t after);

  std::size_t most_;
  std::chrono::milliseconds patience_;
  std::map<Guest, Place> guests_;  // the oldest first
  std::unordered_map<std::string, std::set<Guest>> of_origin_;
  std::set<std::pair<std::size_t, std::string>> counts_;  // the most crowded origin last
};

}  // namespace drun::rendezvous

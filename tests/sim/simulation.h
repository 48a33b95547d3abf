// Base class of the simulations: a clock that jumps from event to event, a clock per host that may
// run too fast or too slow, a random generator, and the first violation. A virtual base where one
// simulation has several parts.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <queue>
#include <random>
#include <string>
#include <utility>

#include "tests/sim/seeds.h"

namespace drun::test {

class Simulation {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Milliseconds = std::chrono::milliseconds;

  // Empty if no invariant was violated.
  const std::string& broken() const { return broken_; }
  Time now() const { return now_; }
  // Covers all events so far and the state of the random generator.
  std::uint64_t trace_hash() const {
    TraceHash hash = hash_;
    hash.add(std::mt19937(random_)());
    return hash.value();
  }

 protected:
  explicit Simulation(std::uint32_t seed) : random_(seed) {}
  ~Simulation() = default;

  int percent() { return static_cast<int>(random_() % 100); }
  Milliseconds between(int low, int high) {
    return Milliseconds(low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1)));
  }
  void at(Time when, std::function<void()> action) {
    pending_.push({when, ++last_number_, std::move(action)});
  }
  void later(Milliseconds delay, std::function<void()> action) {
    at(now_ + delay, std::move(action));
  }

  // Runs the next event if it is not after `until`. Returns false otherwise, or after a violation.
  bool turn(Time until) {
    if (pending_.empty() || pending_.top().when > until || !broken_.empty()) return false;
    const Pending next = pending_.top();
    pending_.pop();
    now_ = next.when;
    note_time();
    next.action();
    return true;
  }

  void set_rate(int host, double rate) { rates_[host] = rate; }
  double rate_of(int host) const {
    const auto found = rates_.find(host);
    return found == rates_.end() ? 1 : found->second;
  }
  // The time on a host's clock.
  Time local(int host) const {
    const auto passed = std::chrono::duration<double, std::nano>(now_.time_since_epoch());
    return Time(std::chrono::duration_cast<Time::duration>(passed * rate_of(host)));
  }
  // Runs `action` once the host's clock shows `when`, at the earliest 1 us from now.
  void at_local(int host, Time when, std::function<void()> action) {
    const auto left = std::chrono::duration<double, std::nano>(when - local(host)) / rate_of(host);
    const auto delay =
        std::chrono::duration_cast<Time::duration>(left) + std::chrono::microseconds(1);
    at(now_ + std::max<Time::duration>(delay, std::chrono::microseconds(1)), std::move(action));
  }

  void require(bool is_good, const std::string& what) {
    if (!is_good && broken_.empty()) broken_ = what;
  }
  // "1200 ms"
  std::string since_start() const {
    const auto passed = now_ - Time(std::chrono::hours(1));
    return std::to_string(std::chrono::duration_cast<Milliseconds>(passed).count()) + " ms";
  }
  bool is_idle() const { return pending_.empty(); }
  // Adds the bytes of a message to the hash.
  void note(std::string_view bytes) { hash_.add(bytes); }
  // Adds an event to the hash. Prints it on stderr if DRUN_SIM_TRACE is set.
  void trace(int host, const std::string& text) {
    hash_.add(static_cast<std::uint64_t>(host));
    hash_.add(text);
    if (!is_traced_) return;
    std::cerr << since_start() << " host" << host << ": " << text << '\n';
  }

  std::mt19937 random_;
  Time now_{std::chrono::hours(1)};
  std::string broken_;

 private:
  struct Pending {
    Time when;
    long number = 0;
    std::function<void()> action;
    bool operator<(const Pending& other) const {
      return when != other.when ? when > other.when : number > other.number;
    }
  };
  void note_time() { hash_.add(static_cast<std::uint64_t>(now_.time_since_epoch().count())); }

  const bool is_traced_ = std::getenv("DRUN_SIM_TRACE") != nullptr;
  TraceHash hash_;
  long last_number_ = 0;
  std::priority_queue<Pending> pending_;
  std::map<int, double> rates_;
};

}  // namespace drun::test

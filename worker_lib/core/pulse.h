// edge. This process's heartbeat page (rendezvous/base/pulse_page.h), which its agent reads to
// detect hangs: each operation is a heartbeat, and the latest operations are recorded.
//
// Cost:    one branch without DRUN_HEARTBEAT_FILE; otherwise about ten plain stores, an atomic
//          increment and two readings of the coarse clock.
// Owner:   the process, from the first use to its end. Groups ensure that a forked child does not
//          use it.
// Thread:  any.   Errors: none; a file that cannot be mapped is ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "rendezvous/base/pulse_page.h"

namespace drun::worker {

struct PulseOperation {
  std::uint32_t group = 0;     // 0: the whole world
  std::uint64_t sequence = 0;  // within the group; 0: it has none
  std::uint64_t bytes = 0;
  std::uint16_t kind = 0;  // in kPulseKinds
};

class Pulse {
 public:
  // The page of this process.
  static Pulse& own();

  // Maps `path`. Does nothing if it is null or unusable.
  explicit Pulse(const char* path);
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;
  ~Pulse();

  bool is_on() const { return page_ != nullptr; }

  // Returns the operation's number, for end(); 0 if the page is off.
  std::uint64_t begin(const PulseOperation& operation);
  void end(std::uint64_t number);

  // Around a call that can wait for other ranks. Returns the time, for end_wait().
  std::uint64_t begin_wait();
  void end_wait(std::uint64_t since_ns);

 private:
  PulsePage* page_ = nullptr;
};

// Adds the time from construction to destruction to the time in calls. Marks must not be nested.
// The clock advances every few milliseconds; the sum over many calls is nevertheless exact on
// average, because a call begins at any time between two ticks.
class WaitMark {
 public:
  WaitMark() : pulse_(Pulse::own()), since_ns_(pulse_.begin_wait()) {}
  WaitMark(const WaitMark&) = delete;
  WaitMark& operator=(const WaitMark&) = delete;
  ~WaitMark() { pulse_.end_wait(since_ns_); }

 private:
  Pulse& pulse_;
  const std::uint64_t since_ns_;
};

// Records one operation, from construction to destruction.
class PulseMark {
 public:
  explicit PulseMark(const PulseOperation& operation)
      : pulse_(Pulse::own()), number_(pulse_.begin(operation)) {}
  PulseMark(PulseMark&& other) noexcept
      : pulse_(other.pulse_), number_(std::exchange(other.number_, 0)) {}
  PulseMark& operator=(PulseMark&&) = delete;
  ~PulseMark() { pulse_.end(number_); }

 private:
  Pulse& pulse_;
  std::uint64_t number_;
};

}  // namespace drun::worker

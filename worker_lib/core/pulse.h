// edge. This process's heartbeat page (rendezvous/base/pulse_page.h), which its agent reads to
// detect hangs: each operation is a heartbeat, and the latest operations are recorded.
//
// Cost:    one branch without DRUN_HEARTBEAT_FILE; otherwise about ten plain stores and an atomic
//          increment.
// Owner:   the process, from the first use to its end. Groups ensure that a forked child does not
//          use it.
// Thread:  any.   Errors: none; a file that cannot be mapped is ignored.
#pragma once

#include <cstddef>
#include <cstdint>

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

 private:
  PulsePage* page_ = nullptr;
};

// Records one operation, from construction to destruction.
class PulseMark {
 public:
  explicit PulseMark(const PulseOperation& operation)
      : pulse_(Pulse::own()), number_(pulse_.begin(operation)) {}
  PulseMark(const PulseMark&) = delete;
  PulseMark& operator=(const PulseMark&) = delete;
  ~PulseMark() { pulse_.end(number_); }

 private:
  Pulse& pulse_;
  const std::uint64_t number_;
};

}  // namespace drun::worker

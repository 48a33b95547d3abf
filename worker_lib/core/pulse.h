// edge. This process's page of signs of life (rendezvous/base/pulse_page.h), which its agent reads
// when it looks for hangs: each operation is a heartbeat, and the latest are written down.
//
// Cost:    without DRUN_HEARTBEAT_FILE a branch; with it some ten plain stores and an atomic count.
// Owner:   the process, from the first use to its end. Groups see that no forked child uses it.
// Thread:  any.   Errors: none: a file that cannot be mapped is as if there were none.
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
  // Of this process.
  static Pulse& own();

  // Maps `path`; null or unusable: does nothing.
  explicit Pulse(const char* path);
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;
  ~Pulse();

  bool is_on() const { return page_ != nullptr; }

  // The operation's number, for end(); 0 when it is not on.
  std::uint64_t begin(const PulseOperation& operation);
  void end(std::uint64_t number);

 private:
  PulsePage* page_ = nullptr;
};

// One operation, from its making to its end.
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

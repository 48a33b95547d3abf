// edge. This process's page of signs of life (rendezvous/pulse_page.h), which its agent reads when
// it looks for hangs: each operation is a heartbeat, and the latest are written down.
//
// Cost:    without DRUN_HEARTBEAT_FILE a branch; with it some ten plain stores and an atomic count.
// Owner:   the process, from the first use to its end. A child that was forked writes nothing.
// Thread:  any.
// Errors:  none: a file that cannot be mapped is as if there were none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rendezvous/pulse_page.h"

namespace drun::worker {

struct PulseOperation {
  std::uint32_t group = 0;     // 0: the whole world
  std::uint64_t sequence = 0;  // within the group; 0: it has none
  std::uint64_t bytes = 0;
  std::string_view name{};  // "all_reduce"
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

  // The operation's number, for end().
  std::uint64_t begin(const PulseOperation& operation);
  void end(std::uint64_t number);

 private:
  PulsePage* page_ = nullptr;
  int fork_generation_ = 0;
};

// One operation, from its making to its end.
class PulseMark {
 public:
  explicit PulseMark(const PulseOperation& operation)
      : number_(Pulse::own().is_on() ? Pulse::own().begin(operation) : 0) {}
  PulseMark(const PulseMark&) = delete;
  PulseMark& operator=(const PulseMark&) = delete;
  ~PulseMark() {
    if (number_ != 0) Pulse::own().end(number_);
  }

 private:
  std::uint64_t number_;
};

}  // namespace drun::worker

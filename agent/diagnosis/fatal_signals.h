// core. The cause and the remedy of a worker's end by a signal that drun did not send, as far as
// facts of its node show them. The node collects the facts at once, because they change
// (agent/supervise/failure_record.cc), and sends the conclusions with the failure
// (with_signal_account of error_text.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/job/outcome.h"

namespace drun::agent {

struct SignalFacts {
  // The count of out-of-memory kills in the workers' cgroup can be read, and has not changed.
  bool counts_oom_kills = false;
  // The limit of a process (ulimit -t). Absent: none.
  std::optional<std::uint64_t> processor_seconds{};
  // kernel.core_pattern; empty: not known.
  std::string core_pattern{};
  bool forbids_core_files = false;  // ulimit -c is 0
  struct Memory {
    std::uint64_t size_bytes = 0;
    std::uint64_t free_bytes = 0;
  };
  std::optional<Memory> shared_memory{};  // /dev/shm
};

// One line each; empty: nothing is known.
struct SignalAccount {
  std::string cause{};
  std::string advice{};
  bool has_no_memory = false;  // /dev/shm is full
  bool operator==(const SignalAccount&) const = default;
};

// Whether account_of() has more to say than the name of the signal.
bool has_account(const Failure& failure);
// `failure`: with the last lines of its stderr.
SignalAccount account_of(const Failure& failure, const SignalFacts& facts);

// The account as lines, and back. Lines of other forms are skipped.
std::string text_of(const SignalAccount& account);
SignalAccount read_account(std::string_view text);

}  // namespace drun::agent

// core. The exception that worker_lib throws. what() is one sentence: this rank, the operation,
// what happened, the reason, the remedy.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace drun {

class WorkerError : public std::runtime_error {
 public:
  // Kinds of errors, by what the caller can do.
  enum class Kind {
    Usage,        // an argument, a variable or the environment is invalid; nothing was sent
    Timeout,      // other ranks did not do their part in time
    PeerLost,     // another rank's process ended or cannot be reached any more
    Mismatch,     // ranks disagree on the operation: another call, type, count, op or root
    Broken,       // the group failed before; the message repeats the first cause
    Unsupported,  // not built into this library
    Store,        // the store (MASTER_ADDR:MASTER_PORT) cannot be reached or failed
    System,       // a call to the operating system or a library failed
  };

  struct Details {
    Kind kind = Kind::System;
    int rank = -1;                           // the rank that throws; -1: not known yet
    std::optional<int> peer = std::nullopt;  // the rank that caused it, if known
    std::string operation = "";              // "all_reduce(f32 x 1000, sum)"
    std::string message = "";
    bool operator==(const Details& other) const {
      return kind == other.kind && rank == other.rank && peer == other.peer &&
             operation == other.operation && message == other.message;
    }
  };

  explicit WorkerError(Details details);

  Kind kind() const { return details_.kind; }
  int rank() const { return details_.rank; }
  std::optional<int> peer() const { return details_.peer; }
  const std::string& operation() const { return details_.operation; }
  const std::string& message() const { return details_.message; }

 private:
  Details details_;
};

// "timeout", "peer lost", ...
std::string_view to_string(WorkerError::Kind kind);

}  // namespace drun

// edge. Starts the ranks of a program as child processes on one machine, as
// torch.multiprocessing.spawn does.
//
//     int main() {
//       return drun::record([] {
//         drun::spawn([](int rank) {
//           drun::ProcessGroup group = drun::init_process_group();   // env:// is set up
//           ...
//         }, 4);
//       });
//     }
//
// Children: forked, so `body` can use everything computed before. Each has RANK, LOCAL_RANK,
//           WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT of a store that the parent
//           hosts, and an empty standard input. A child exits with `body`, without destructors of
//           static objects and atexit functions; output is flushed.
// Blocks:   until all have ended. No child outlives the parent, even if the parent is killed.
// Failure:  if one fails, the others are sent SIGTERM, and SIGKILL after the grace period; the
//           first failure is thrown.
// Errors:   SpawnError. WorkerError: Usage for an invalid number of processes, if there is a
//           default group already, or if other threads run (a fork copies their locks but not the
//           threads); System; Store.
// Thread:   one at a time.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>

namespace drun {

struct SpawnOptions {
  // From SIGTERM to SIGKILL, for the ranks that did not fail.
  std::chrono::milliseconds grace{std::chrono::seconds(10)};
};

class SpawnError : public std::runtime_error {
 public:
  struct Details {
    int rank = 0;
    std::optional<int> exit_code = std::nullopt;  // of a process that exited
    std::optional<int> signal = std::nullopt;     // of one that was killed
    std::string message = "";                     // of the exception that left `body`, if any
  };

  explicit SpawnError(Details details);

  int rank() const { return details_.rank; }
  std::optional<int> exit_code() const { return details_.exit_code; }
  std::optional<int> signal() const { return details_.signal; }
  const std::string& message() const { return details_.message; }

 private:
  Details details_;
};

void spawn(const std::function<void(int rank)>& body, int process_count,
           const SpawnOptions& options = {});

}  // namespace drun

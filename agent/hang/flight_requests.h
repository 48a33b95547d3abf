// edge. Asks PyTorch in this node's workers for dumps of the Flight Recorder, and reads them.
//
// Ways:    a byte to the named pipe of ProcessGroupNCCL (TORCH_NCCL_DEBUG_INFO_PIPE_FILE), which
//          then writes a dump to a file; and a request to the worker's control server
//          (TORCH_WORKER_SERVER_SOCKET), which answers with JSON. A worker may have either or none.
// Files:   <round>_<rank>.pipe, <round>_<rank> and <round>_<local rank>.sock, in a scratch
//          directory (scratch.h).
// Limits:  4 s and 32 MiB for each worker. Files and answers are a worker's and may be anything.
// Owner:   WorkerWatch. Call stop() before workers are stopped.
// Thread:  the io_context's; pipes, sockets and files are used in a FileWriter's thread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/diagnosis/flight_recorder.h"
#include "agent/output/file_writer.h"
#include "agent/process/scratch.h"
#include "agent/spec.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/world.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

// Where one worker is asked. Empty: not there.
struct FlightPlace {
  int rank = 0;
  std::string pipe{};
  std::string file{};
  std::string socket{};
};

// Asks all workers and waits for their dumps until `limit` or `is_cancelled`. Absent: no dump.
// Blocks.
std::vector<std::optional<FlightDump>> collect_flights(const std::vector<FlightPlace>& places,
                                                       std::chrono::milliseconds limit,
                                                       const std::atomic<bool>& is_cancelled);

class FlightRequests {
 public:
  using OnDumps = std::function<void(const std::vector<std::optional<FlightDump>>&)>;
  // The first dump of a process may take seconds.
  static constexpr std::chrono::seconds kLimit{4};

  FlightRequests(asio::io_context& io, const Log& log, const AgentSpec& spec);
  FlightRequests(const FlightRequests&) = delete;
  FlightRequests& operator=(const FlightRequests&) = delete;
  ~FlightRequests();

  // Errors: System if the directory cannot be created.
  Result<void> prepare(const World& world);
  // The variables for a worker, without those that the user has set. Empty without --hang-timeout.
  std::vector<EnvironmentEntry> environment(int local_rank) const;

  // `on_dumps` is called once, from the loop, by local rank; not after stop(). If the thread is
  // still busy with an earlier request, there are no dumps. While the file system hangs, the call
  // takes longer than kLimit.
  void ask(OnDumps on_dumps);
  void stop();
  // Call at the end of the job: a thread that hangs keeps the io_context running no longer.
  void close();

 private:
  struct Names {
    std::string pipe{};  // in front of the rank and ".pipe"
    std::string file{};  // in front of the rank
    bool sets_pipe = false;
    bool sets_file = false;
    bool sets_socket = false;
  };
  std::string socket_of(int local_rank) const;

  asio::io_context& io_;
  bool is_on_ = false;
  Names names_;
  ScratchDirectory directory_{"flights"};
  int round_ = 0;
  int base_rank_ = 0;
  int workers_ = 0;
  FileWriter thread_;
  std::shared_ptr<std::atomic<bool>> is_cancelled_;
};

}  // namespace drun::agent

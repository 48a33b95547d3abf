// edge. One inspection of this node's workers: NCCL's RAS status and dumps of PyTorch's Flight
// Recorder, then their stacks.
//
// A debugger that reads a process's stacks also stops its RAS thread. RAS and the Flight Recorder
// are therefore asked first and get one second; the stacks are then read in any case, and the
// inspection ends when all are done. It does not wait for dumps from a file system that hangs. A
// request during an inspection gets the same result.
//
// Owner:   WorkerWatch; the service and the collector must outlive it. Call stop() before they are
//          stopped.
// Thread:  the io_context's only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/hang/flight_requests.h"
#include "agent/hang/heartbeat_files.h"
#include "agent/nccl_ras/ras_position.h"
#include "agent/nccl_ras/ras_service.h"
#include "agent/stacks/evidence.h"
#include "agent/stacks/stacks.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

class NodeLook {
 public:
  struct Found {
    FoundStacks stacks{};
    ras::Findings nccl{};
    std::vector<std::optional<FlightDump>> flights{};  // by local rank; may be shorter
  };
  using OnDone = std::function<void(const Found&)>;

  // `on_dumps`: called from the loop when the Flight Recorder has answered, or did not in time.
  NodeLook(asio::io_context& io, ras::Service& ras, FlightRequests& flights,
           StackCollector& collector, std::function<void()> on_dumps)
      : head_start_(io),
        dumps_limit_(io),
        ras_(ras),
        flights_(flights),
        collector_(collector),
        on_dumps_(std::move(on_dumps)) {}

  // `on_done` is called once, from the loop or from stop().
  void take(const ras::Service::Workers& workers, OnDone on_done);

  // Reads no stacks any more.
  void stop();

 private:
  void note_dumps(const std::vector<std::optional<FlightDump>>& dumps);
  void read_stacks();
  void read_stacks_if_told();
  void end_if_done();

  asio::steady_timer head_start_;
  asio::steady_timer dumps_limit_;
  ras::Service& ras_;
  FlightRequests& flights_;
  StackCollector& collector_;
  std::function<void()> on_dumps_;
  std::uint64_t number_ = 0;
  ras::Service::Workers workers_;
  bool reads_stacks_ = false;
  std::optional<FoundStacks> stacks_;
  std::optional<ras::Findings> findings_;
  std::optional<std::vector<std::optional<FlightDump>>> dumps_;
  std::vector<OnDone> waiting_;
};

// --- The findings about this node's workers, as evidence that can be merged with that of other
// nodes

struct WorkerFacts {
  Pulse pulse{};
  bool is_quiet = false;  // no sign of activity for the hang timeout
  ras::RankPosition nccl{};
  std::vector<std::string> calls{};  // of PyTorch's Flight Recorder (flight_lines)
};

// `facts`: by local rank, like found.workers. `notes`: additional lines. `base_rank`: the rank of
// local rank 0.
Evidence evidence_of(const FoundStacks& found, int base_rank, const std::vector<WorkerFacts>& facts,
                     const std::vector<std::string>& notes = {});

}  // namespace drun::agent

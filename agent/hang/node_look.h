// edge. One look at this node's workers: the answer of NCCL's RAS service, then their stacks.
//
// Order:   a debugger that reads a process's stack holds its RAS thread, too. So the service is
//          asked first and has a second. Then the stacks are read in any case, and the look waits
//          for both. A request during a look gets the same answer.
// Owner:   WorkerWatch; the service and the collector must outlive it. stop() before these are.
// Thread:  the io_context's only. Answers come from the loop, once each, or from stop().
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "agent/nccl_ras/ras_service.h"
#include "agent/stacks/stacks.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

class NodeLook {
 public:
  using OnDone = std::function<void(const FoundStacks&, const ras::Findings&)>;

  NodeLook(asio::io_context& io, ras::Service& ras, StackCollector& collector)
      : head_start_(io), ras_(ras), collector_(collector) {}

  void take(const ras::Service::Workers& workers, OnDone on_done);

  // No stacks are read from now on.
  void stop();

 private:
  void read_stacks();
  void end_if_done();

  asio::steady_timer head_start_;
  ras::Service& ras_;
  StackCollector& collector_;
  std::uint64_t number_ = 0;
  ras::Service::Workers workers_;
  bool reads_stacks_ = false;
  std::optional<FoundStacks> stacks_;
  std::optional<ras::Findings> findings_;
  std::vector<OnDone> waiting_;
};

}  // namespace drun::agent

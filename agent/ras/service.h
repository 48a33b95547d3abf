// edge. NCCL's RAS service of this node's workers: where it listens, and what it says of them.
//
// Place:   127.0.0.1 and a port that this agent holds for its life: bound with SO_REUSEPORT and not
//          listening, so that no other program gets it, and NCCL, which binds it in every process
//          of the node with that option too, does. Two jobs of one machine never meet there. What
//          the user names is asked instead; without --hang-timeout nothing else is.
// Absent:  no NCCL, an older one, a closed port, garbage: empty findings, and one line for debug.
// Owner:   WorkerWatch. stop() before workers are stopped.   Thread: the io_context's only.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/ras/client.h"
#include "agent/ras/place.h"
#include "agent/ras/standing.h"
#include "rendezvous/log.h"
#include "rendezvous/unique_fd.h"

namespace drun::agent::ras {

class Service {
 public:
  using OnFindings = std::function<void(const Findings&)>;

  struct Workers {
    std::vector<int> pids{};  // by local rank; 0: has ended
    int base_rank = 0;
  };

  Service(asio::io_context& io, const Log& log, const AgentSpec& spec);

  // NCCL_RAS_ADDR for the workers; empty: drun sets none.
  const std::string& variable() const { return variable_; }

  bool can_be_asked() const { return place_.has_value(); }

  // Answered from the loop, once and only once.
  void ask(const Workers& workers, OnFindings on_findings);

  // What was asked is not answered any more.
  void stop() { client_.stop(); }

 private:
  void hold_port();
  void say(const std::string& text);

  asio::io_context& io_;
  Log log_;
  Client client_;
  UniqueFd held_;
  std::optional<Endpoint> place_;
  std::string variable_;
  std::string said_;
};

}  // namespace drun::agent::ras

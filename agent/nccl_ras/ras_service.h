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

#include "agent/nccl_ras/ras_client.h"
#include "agent/nccl_ras/ras_position.h"
#include "agent/spec.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/endpoint.h"

namespace drun::agent::ras {

// --- The address of the service
//
// Follows the user's NCCL_RAS_ADDR and NCCL_RAS_ENABLE, as described in NCCL's user guide (2.24 and
// later).

constexpr const char* kAddressVariable = "NCCL_RAS_ADDR";
constexpr const char* kEnableVariable = "NCCL_RAS_ENABLE";

struct RasSettings {
  bool is_off = false;              // NCCL_RAS_ENABLE=0
  bool names_place = false;         // NCCL_RAS_ADDR is set
  std::optional<Endpoint> place{};  // ... and says where
  bool operator==(const RasSettings&) const = default;
};

// From what workers inherit, and the -x of the first program that says something.
RasSettings settings_of(const WorkerSpec& spec);

// drun gives the workers of a job a separate address. It is only useful for hang detection; without
// that, workers get only torchrun's environment.
bool gives_place(const AgentSpec& spec);

// --- Queries

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

  // Drops pending questions without an answer.
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

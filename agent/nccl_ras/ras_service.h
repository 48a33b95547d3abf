// edge. Queries NCCL's RAS service of this node's workers, and chooses its address.
//
// Address: 127.0.0.1 and a port that this agent reserves: it binds the port with SO_REUSEPORT but
//          does not listen. No other program can then get the port, but NCCL can, because it binds
//          the port in every process of the node with that option too. Two jobs on a machine
//          therefore never share a service. If the user sets an address, it is queried instead.
//          Without --hang-timeout only that address is queried.
// Errors:  no NCCL, an older one, a closed port or an invalid answer: empty findings, and a debug
//          message.
// Owner:   WorkerWatch. Call stop() before workers are stopped.   Thread: the io_context's only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/nccl_ras/ras_position.h"
#include "agent/nccl_ras/ras_report.h"
#include "agent/spec.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/asio.h"
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
  std::optional<Endpoint> place{};  // its value, if valid
  bool operator==(const RasSettings&) const = default;
};

// The settings in the inherited environment, and in the -x of the first program that has any.
RasSettings settings_of(const WorkerSpec& spec);

// drun gives the workers of a job a separate address. It is only useful for hang detection; without
// that, workers get only torchrun's environment.
bool gives_place(const AgentSpec& spec);

// --- A nonblocking client: one query at a time, with limits on time and size
//
// Stopped: all processes of the node listen at the address, and the kernel selects one of them. If
//          it does not respond for a second, it may be stopped, and another connection is tried, up
//          to four.
// Owner:   the caller; destruction and stop() cancel a query without calling `on_answer`.
// Thread:  the io_context's only. `on_answer` is called exactly once, from the loop.
// Errors:  Unreachable: nothing listens there; Timeout: no complete answer in time; Refused: the
//          answer is invalid.

class Client {
 public:
  using OnAnswer = std::function<void(const Result<Report>&)>;

  explicit Client(asio::io_context& io,
                  std::chrono::milliseconds limit = std::chrono::milliseconds(6500))
      : io_(io), limit_(limit) {}
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { stop(); }

  // `host`: a numeric address, or localhost. A call during a query gets the same answer.
  void ask(const std::string& host, std::uint16_t port, OnAnswer on_answer);
  void stop();

 private:
  class Question;

  asio::io_context& io_;
  std::chrono::milliseconds limit_;
  std::shared_ptr<Question> question_;  // handlers keep it alive until they have run
};

// --- The service of this node's workers

class Service {
 public:
  using OnFindings = std::function<void(const Findings&)>;

  struct Workers {
    std::vector<int> pids{};  // by local rank; 0: has ended
    int base_rank = 0;
  };

  Service(asio::io_context& io, const Log& log, const AgentSpec& spec);

  // NCCL_RAS_ADDR for the workers; empty: drun does not set it.
  const std::string& variable() const { return variable_; }

  bool can_be_asked() const { return place_.has_value(); }

  // `on_findings` is called exactly once, from the loop.
  void ask(const Workers& workers, OnFindings on_findings);

  // Drops pending queries; their callbacks are not called.
  void stop() { client_.stop(); }

 private:
  void hold_port();
  void log_change(const std::string& text);

  asio::io_context& io_;
  Log log_;
  Client client_;
  UniqueFd held_;
  std::optional<Endpoint> place_;
  std::string variable_;
  std::string last_logged_;
};

}  // namespace drun::agent::ras

// edge. All the ranks of a job, and what they do together.
//
//     drun::ProcessGroup group = drun::init_process_group();
//     std::vector<float> gradients = ...;
//     group.all_reduce(gradients);          // in place: the sum over all ranks, on every rank
//
// Order:   every rank calls the same collectives (all_reduce, broadcast, barrier) in the same order
//          with the same type, count, op and root. Each call compares that with the other ranks
//          first; where they disagree every rank throws Mismatch, naming who called what. send and
//          recv are not part of that order and never wait behind a collective.
// Memory:  results are written in place. After an error the buffer's content is unspecified. All
//          ranks get the same bits.
// Errors:  WorkerError. Usage is thrown before anything is sent and changes nothing. After any
//          other error the group is broken for good: its connections are closed, so that the other
//          ranks fail too, within a quarter of a second and with the same first cause, and every
//          later call throws Broken. Start over with a new process (drun's --max-restarts) or a new
//          group.
// Timeout: of each operation as a whole; init's applies where a call is not given one.
// Thread:  any, at the same time; but who calls collectives from several threads must see to it
//          that the order is the same on all ranks. Runs one executor thread, and Gloo's own.
// Owner:   a value; movable. Its destructor closes the connections without a word to the others:
//          call barrier() first if somebody may still be waiting for data. Moved-from: may only be
//          destroyed or assigned to.
// Process: init ignores SIGPIPE where it had its default (a dead peer must not be fatal). Do not
//          fork after init, but to exec.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "drun/elements.h"
#include "drun/error.h"
#include "drun/key_store.h"

namespace drun {

struct InitOptions {
  // "env://": RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and the rest of what drun and torchrun
  // set. "tcp://host:port?rank=R&world_size=N": without an environment; rank 0 hosts the store.
  std::string init_method = "env://";
  // For tcp:// without them in the address; required with a store.
  std::optional<int> rank = std::nullopt;
  std::optional<int> world_size = std::nullopt;
  // Use this one instead of connecting to a store; init_method is ignored then. The caller sees to
  // it that no keys of an earlier job are in it.
  std::shared_ptr<KeyStore> store = nullptr;
  // For all ranks to find each other, and for each operation.
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};
  // Network interface for the traffic between ranks; empty: the variable GLOO_SOCKET_IFNAME, else
  // the address from which MASTER_ADDR is reached (with `store`: loopback).
  std::string network_interface = "";
};

class ProcessGroup {
 public:
  using Timeout = std::optional<std::chrono::milliseconds>;

  ProcessGroup(ProcessGroup&&) noexcept;
  ProcessGroup& operator=(ProcessGroup&&) noexcept;
  ~ProcessGroup();

  int rank() const;
  int size() const;
  int local_rank() const;     // among the ranks of this node
  int restart_count() const;  // how often drun has started this job again

  // Everybody's `data`, element by element, reduced into everybody's `data`.
  template <WritableElementRange R>
  void all_reduce(R&& data, ReduceOp op = ReduceOp::Sum, Timeout timeout = {}) {
    all_reduce(elements_of(data), op, timeout);
  }
  // `root`'s data into everybody's.
  template <WritableElementRange R>
  void broadcast(R&& data, int root, Timeout timeout = {}) {
    broadcast(elements_of(data), root, timeout);
  }
  // Nobody leaves before everybody has come.
  void barrier(Timeout timeout = {});

  // Return when the peer has received, or this rank has: a send waits for its recv, so two ranks
  // that both send first wait for each other until the timeout. Messages with the same tag arrive
  // in order. Type and count must be the same on both sides. Tags: 0 to 2^20 - 1.
  template <ElementRange R>
  void send(R&& data, int to, int tag = 0, Timeout timeout = {}) {
    send(const_elements_of(data), to, tag, timeout);
  }
  template <WritableElementRange R>
  void recv(R&& data, int from, int tag = 0, Timeout timeout = {}) {
    recv(elements_of(data), from, tag, timeout);
  }

  // The same for types known at run time only.
  void all_reduce(Elements data, ReduceOp op, Timeout timeout = {});
  void broadcast(Elements data, int root, Timeout timeout = {});
  void send(ConstElements data, int to, int tag, Timeout timeout = {});
  void recv(Elements data, int from, int tag, Timeout timeout = {});

 private:
  class Group;
  friend ProcessGroup init_process_group(const InitOptions& options);
  explicit ProcessGroup(std::unique_ptr<Group> group);

  std::unique_ptr<Group> group_;
};

// Finds the other ranks; returns on every rank when all are connected. Every rank calls it the same
// number of times. Throws WorkerError: Usage for an environment that makes no sense, Timeout naming
// the ranks that did not come, Store, Mismatch for ranks built with another Gloo, Unsupported for
// more than one rank without Gloo.
ProcessGroup init_process_group(const InitOptions& options = {});

}  // namespace drun

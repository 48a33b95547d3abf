// edge. Groups of the shared-memory backend for tests: ranks as processes that really connect, or
// as threads with shared memory, so that a thread sanitizer sees all of them.
//
// A rank's exception is in its RankEnd. With threads, the first exception is rethrown.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "drun/backend.h"
#include "tests/support/calls.h"
#include "tests/support/in_rank.h"
#include "tests/support/ranks.h"

namespace drun::test {

// A rank's backend with numbered calls, and a thread that tells it about lost peers as a group
// does.
class ShmRank {
 public:
  ShmRank(std::unique_ptr<Backend> backend, int rank, int size);
  ~ShmRank();
  ShmRank(const ShmRank&) = delete;
  ShmRank& operator=(const ShmRank&) = delete;

  Backend& backend() { return *backend_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  Turn turn(std::chrono::milliseconds limit = std::chrono::seconds(40));

  void run(const Call& call) { backend_->run(call, turn()); }
  void barrier() { run({.operation = Operation::Barrier}); }
  void send(const ConstElements& data, int to, int tag = 0);
  int recv(const Elements& data, std::optional<int> from, int tag = 0);
  // Like failure_of below. After a failure it aborts, as a group does.
  std::string failure_of(const std::function<void()>& action);

 private:
  std::unique_ptr<Backend> backend_;
  const int rank_;
  const int size_;
  std::uint32_t sequence_ = 0;
  int stop_[2] = {-1, -1};
  std::thread watcher_;
};

using ShmBody = std::function<void(ShmRank& rank, const Say& say)>;

BackendContext shm_context(int rank, int size, std::uint16_t store_port,
                           std::chrono::milliseconds limit = std::chrono::seconds(40));

// reads_peers: long messages are read from their senders' memory instead of through rings.
std::vector<RankEnd> run_shm_processes(int size, const ShmBody& body, bool reads_peers = true);
// Uses rings.
void run_shm_threads(int size, const std::function<void(ShmRank& rank)>& body);

// Finishes a message that may be done already.
void finish(const std::unique_ptr<Transfer>& message);

// Returns kind, peer and text of the BackendFailure that the function throws, such as
// "peer lost 1: lost rank 1".
std::string failure_of(const std::function<void()>& action);

}  // namespace drun::test

// edge. The backend over MPI.
//
// Every operation is started without blocking and polled until it is done, so that deadlines, and
// an abort by another thread, can end the wait. The thread yields the processor between polls.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "drun/backend.h"

namespace drun::worker::mpi {

class Communicator {
 public:
  Communicator() = default;
  explicit Communicator(MPI_Comm comm) : comm_(comm) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }
  ~Communicator() {
    int is_over = 0;
    MPI_Finalized(&is_over);
    if (comm_ != MPI_COMM_NULL && is_over == 0 && is_clean_) MPI_Comm_free(&comm_);
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  MPI_Comm get() const { return comm_; }
  // Call if requests are still pending: freeing the communicator would wait for the other ranks.
  void abandon() { is_clean_ = false; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  bool is_clean_ = true;
};

class MpiBackend final : public Backend {
 public:
  explicit MpiBackend(const BackendContext& context);

  std::string name() const override { return "mpi"; }
  std::string refusal(const Call& call) const override;
  std::string message_refusal(const ConstElements& data, bool is_from_anyone,
                              int tag) const override;
  void run(const Call& call, const Turn& turn) override;
  std::unique_ptr<Transfer> start_send(const ConstElements& data, int to, int tag) override;
  std::unique_ptr<Transfer> start_recv(const Elements& data, std::optional<int> from,
                                       int tag) override;
  void abort() noexcept override;

  // Waits until the request is done. Throws after the deadline or an abort.
  void wait(MPI_Request& request, Deadline deadline, MPI_Status* status = MPI_STATUS_IGNORE,
            std::optional<int> peer = {});
  // Whether wait() would return or throw at once.
  bool would_end(MPI_Request& request, MPI_Status* status = MPI_STATUS_IGNORE,
                 std::optional<int> peer = {});
  MPI_Comm headers() const { return headers_.get(); }
  MPI_Comm payloads() const { return payloads_.get(); }

 private:
  MPI_Comm make_communicator(int tag) const;
  void compare(const Call& call, const Turn& turn);

  const int size_;
  const bool is_debug_;
  const std::vector<int> members_;  // their ranks in MPI_COMM_WORLD
  Communicator collectives_;
  Communicator headers_;
  Communicator payloads_;
  std::atomic<bool> is_aborted_ = false;
  std::atomic<std::uint32_t> messages_ = 0;  // sent
};

}  // namespace drun::worker::mpi

// Messages: a header that describes the payload, then the payload under a separate tag, so that
// several messages of one rank can be received at the same time.
#include <array>
#include <exception>

#include "worker_lib/base/signature.h"
#include "worker_lib/mpi/mpi_backend.h"
#include "worker_lib/mpi/mpi_types.h"

namespace drun::worker::mpi {
namespace {

// The header: type and count of the payload, and its tag.
struct Header {
  Signature signature{};
  std::uint32_t number = 0;
};

// What MPI has of a message while it is under way, beside the caller's data.
struct State {
  Header header;
  std::array<MPI_Request, 2> requests = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
};

// The least that every MPI has.
constexpr std::uint32_t kPayloadTags = 32768;

class MpiSend final : public Transfer {
 public:
  MpiSend(MpiBackend& backend, const ConstElements& data, int to, int tag, std::uint32_t number)
      : backend_(backend), to_(to) {
    state_->header = {signature_of(data.type, data.count), number};
    const std::size_t bytes = data.count * size_bytes(data.type);
    must(MPI_Isend(&state_->header, sizeof(Header), MPI_BYTE, to, tag, backend.headers(),
                   &state_->requests[0]),
         "MPI_Isend", to);
    if (bytes == 0) return;
    must(MPI_Isend(data.data, to_int(bytes), MPI_BYTE, to, static_cast<int>(number % kPayloadTags),
                   backend.payloads(), &state_->requests[1]),
         "MPI_Isend", to);
  }
  int finish(Deadline deadline) override {
    for (MPI_Request& request : state_->requests) {
      backend_.wait(request, deadline, MPI_STATUS_IGNORE, to_);
    }
    return to_;
  }
  // A failed test fails again in finish().
  std::optional<bool> is_done() override {
    try {
      return backend_.would_end(state_->requests[0]) && backend_.would_end(state_->requests[1]);
    } catch (const BackendFailure&) {
      return true;
    }
  }

 private:
  MpiBackend& backend_;
  int to_;
  const Held<State> state_;
};

class MpiReceive final : public Transfer {
 public:
  MpiReceive(MpiBackend& backend, const Elements& data, std::optional<int> from, int tag)
      : backend_(backend), data_(data), from_(from) {
    must(MPI_Irecv(&state_->header, sizeof(Header), MPI_BYTE, from.value_or(MPI_ANY_SOURCE), tag,
                   backend.headers(), &state_->requests[0]),
         "MPI_Irecv", from);
  }
  int finish(Deadline deadline) override {
    if (failure_) std::rethrow_exception(failure_);
    if (!sender_) {
      MPI_Status status;
      backend_.wait(state_->requests[0], deadline, &status, from_);
      take_header(status);
    }
    backend_.wait(state_->requests[1], deadline, MPI_STATUS_IGNORE, sender_);
    return *sender_;
  }
  std::optional<bool> is_done() override {
    try {
      MPI_Status status{};
      status.MPI_SOURCE = MPI_ANY_SOURCE;
      if (!sender_ && backend_.would_end(state_->requests[0], &status, from_)) {
        if (status.MPI_SOURCE < 0) return true;  // aborted
        take_header(status);
      }
      return sender_ && backend_.would_end(state_->requests[1], MPI_STATUS_IGNORE, sender_);
    } catch (...) {
      failure_ = std::current_exception();
      return true;
    }
  }

 private:
  void take_header(const MPI_Status& status) {
    const int from = status.MPI_SOURCE;
    const Signature expected = signature_of(data_.type, data_.count);
    const Header& header = state_->header;
    if (header.signature != expected) {
      throw BackendFailure(WorkerError::Kind::Mismatch, from,
                           "rank " + std::to_string(from) + " sends " + describe(header.signature) +
                               ", this rank receives " + describe(expected));
    }
    if (data_.count > 0)
      must(MPI_Irecv(data_.data, to_int(data_.count * size_bytes(data_.type)), MPI_BYTE, from,
                     static_cast<int>(header.number % kPayloadTags), backend_.payloads(),
                     &state_->requests[1]),
           "MPI_Irecv", from);
    sender_ = from;
  }

  MpiBackend& backend_;
  Elements data_;
  std::optional<int> from_;
  std::optional<int> sender_{};   // set: the header has arrived
  std::exception_ptr failure_{};  // found by is_done()
  const Held<State> state_;
};

}  // namespace

std::unique_ptr<Transfer> MpiBackend::start_send(const ConstElements& data, int to, int tag) {
  return std::make_unique<MpiSend>(*this, data, to, tag, messages_++);
}

std::unique_ptr<Transfer> MpiBackend::start_recv(const Elements& data, std::optional<int> from,
                                                 int tag) {
  return std::make_unique<MpiReceive>(*this, data, from, tag);
}

}  // namespace drun::worker::mpi

#include "worker_lib/mesh/mesh_messages.h"

#include <cstring>
#include <exception>
#include <utility>

#include "worker_lib/base/signature.h"
#include "worker_lib/mesh/slots.h"

namespace drun::worker {
namespace {

// Up to here the data comes with the header: copying it costs less than a second message.
constexpr std::size_t kShortBytes = 32 * 1024;

struct Header {
  Signature what{};
  std::uint64_t number = 0;
};
static_assert(sizeof(Header) == sizeof(Signature) + 8);
// A receiver has room for any short message, to report one of another size.
constexpr std::size_t kLetterBytes = sizeof(Header) + kShortBytes;

std::size_t bytes_of(const ConstElements& data) { return data.count * size_bytes(data.type); }

class Sending final : public Transfer {
 public:
  Sending(Mesh& mesh, const ConstElements& data, int to, int tag, std::uint64_t number) {
    const Header header{signature_of(data.type, data.count), number};
    const std::size_t bytes = bytes_of(data);
    const std::size_t with_header = bytes <= kShortBytes ? bytes : 0;
    letter_ = std::make_unique_for_overwrite<char[]>(sizeof header + with_header);
    std::memcpy(letter_.get(), &header, sizeof header);
    if (with_header > 0) std::memcpy(&letter_[sizeof header], data.data, with_header);
    first_ = mesh.send(to, header_slot(tag), letter_.get(), sizeof header + with_header);
    has_second_ = bytes > with_header;
    if (has_second_) second_ = mesh.send(to, payload_slot(number), data.data, bytes);
  }
  int finish(Deadline deadline) override {
    const int to = first_->wait(deadline);
    if (has_second_) second_->wait(deadline);
    return to;
  }
  std::optional<bool> is_done() override {
    const std::optional<bool> first = first_->is_done();
    return first == true && has_second_ ? second_->is_done() : first;
  }

 private:
  std::unique_ptr<char[]> letter_;
  bool has_second_ = false;
  Mesh::Started first_;  // gone before the letter
  Mesh::Started second_;
};

class Receiving final : public Transfer {
 public:
  Receiving(Mesh& mesh, const Elements& data, std::optional<int> from, int tag, ClaimSide claim)
      : mesh_(mesh), data_(data), letter_(std::make_unique_for_overwrite<char[]>(kLetterBytes)) {
    first_ = from ? mesh.recv(*from, header_slot(tag), letter_.get(), kLetterBytes)
                  : mesh.recv_any(header_slot(tag), letter_.get(), kLetterBytes, claim);
  }
  int finish(Deadline deadline) override {
    if (failure_) std::rethrow_exception(failure_);
    if (!from_) take_header(deadline);
    if (second_) second_->wait(deadline);
    return *from_;
  }
  std::optional<bool> is_done() override {
    if (!from_ && !failure_) {
      const std::optional<bool> has_header = first_->is_done();
      if (has_header != true) return has_header;
      try {
        take_header(Deadline::clock::now());
      } catch (...) {
        failure_ = std::current_exception();
      }
    }
    return failure_ || !second_ ? true : second_->is_done();
  }

 private:
  void take_header(Deadline deadline) {
    const int from = first_->wait(deadline);
    Header header;
    std::memcpy(&header, letter_.get(), sizeof header);
    const Signature expected = signature_of(data_.type, data_.count);
    if (header.what != expected) {
      throw BackendFailure(WorkerError::Kind::Mismatch, from,
                           "rank " + std::to_string(from) + " sends " + describe(header.what) +
                               ", this rank receives " + describe(expected));
    }
    const std::size_t bytes = bytes_of(data_);
    if (bytes > kShortBytes) {
      second_ = mesh_.recv(from, payload_slot(header.number), data_.data, bytes);
    } else if (bytes > 0) {
      std::memcpy(data_.data, &letter_[sizeof header], bytes);
    }
    from_ = from;
  }

  Mesh& mesh_;
  Elements data_;
  std::unique_ptr<char[]> letter_;
  std::optional<int> from_;     // set: the header has arrived
  std::exception_ptr failure_;  // found by is_done()
  Mesh::Started first_;         // gone before the letter
  Mesh::Started second_;
};

}  // namespace

std::unique_ptr<Transfer> MeshMessages::start_send(const ConstElements& data, int to, int tag) {
  return std::make_unique<Sending>(mesh_, data, to, tag, next_number_++);
}

std::unique_ptr<Transfer> MeshMessages::start_recv(const Elements& data, std::optional<int> from,
                                                   int tag, ClaimSide claim) {
  return std::make_unique<Receiving>(mesh_, data, from, tag, claim);
}

}  // namespace drun::worker

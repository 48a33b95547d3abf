#include "worker_lib/nccl/messages.h"

#include <cstring>
#include <string>

#include "worker_lib/base/signature.h"
#include "worker_lib/nccl/library.h"
#include "worker_lib/nccl/types.h"

namespace drun::worker {
namespace {

using Kind = WorkerError::Kind;

class PendingMessage final : public Transfer {
 public:
  PendingMessage(Communicators& lines, Channel& lane, const Elements& data, std::uint64_t number)
      : lines_(lines),
        lane_(lane),
        data_(data),
        number_(number),
        after_(lines.gpu(data.gpu), static_cast<cuda::Stream>(data.stream)) {}

  int finish(Deadline deadline) override {
    const Awaited awaited{.peer = other(), .deadline = deadline};
    wait_for_turn(awaited);
    if (data_.count > 0) {
      const Event end = start(awaited);
      pass_turn();
      lane_.line->wait(end, awaited);
    } else {
      if (lines_.context().is_debug) compare(awaited);
      pass_turn();
    }
    return other();
  }

 private:
  bool is_send() const { return lines_.context().rank == lane_.from; }
  int other() const { return is_send() ? lane_.to : lane_.from; }
  std::string name() const {
    return "lane/" + std::to_string(lane_.from) + "-" + std::to_string(lane_.to);
  }

  void wait_for_turn(const Awaited& awaited) const {
    CancelToken& stop = lines_.stop();
    if (stop.wait_until(awaited.deadline, [this] { return lane_.started == number_; })) return;
    if (stop.is_raised()) throw BackendFailure(Kind::Broken, std::nullopt, "aborted");
    throw BackendFailure(Kind::Timeout, other(),
                         "an earlier message between this rank and rank " +
                             std::to_string(other()) + " is not done");
  }
  void pass_turn() const {
    lines_.stop().change([this] { ++lane_.started; });
  }

  Event start(const Awaited& awaited) const {
    if (!lane_.line) {
      lane_.line =
          lines_.connect(name(), lane_.from, {.rank = is_send() ? 0 : 1, .size = 2}, awaited);
    }
    if (lines_.context().is_debug) compare(awaited);
    const nccl::Api& api = need_nccl();
    const nccl::Moved moved = nccl::moved_as(data_.type);
    const std::size_t units = data_.count * moved.units;
    return lane_.line->start(after_, awaited, [&](nccl::Comm comm, cuda::Stream stream) {
      return is_send() ? api.send(data_.data, units, moved.type, 1, comm, stream)
                       : api.recv(data_.data, units, moved.type, 0, comm, stream);
    });
  }

  // The receiver compares its type and count with those published by the sender.
  void compare(const Awaited& awaited) const {
    using std::chrono::milliseconds;
    const auto left = std::max(std::chrono::duration_cast<milliseconds>(
                                   awaited.deadline - std::chrono::steady_clock::now()),
                               milliseconds(1));
    const Signature mine = signature_of(data_.type, data_.count);
    const std::string key = "nccl/" + name() + "/" + std::to_string(number_);
    KeyStore& store = *lines_.context().store;
    if (is_send()) {
      return store.set(key, std::string(reinterpret_cast<const char*>(&mine), sizeof mine), left);
    }
    const std::string told = store.get(key, left);
    Signature theirs{};
    if (told.size() == sizeof theirs) std::memcpy(&theirs, told.data(), sizeof theirs);
    if (theirs == mine) return;
    throw BackendFailure(Kind::Mismatch, other(),
                         "rank " + std::to_string(other()) + " sends " + describe(theirs) +
                             ", this rank receives " + describe(mine));
  }

  Communicators& lines_;
  Channel& lane_;
  const Elements data_;
  const std::uint64_t number_;
  const Event after_;
};

}  // namespace

std::unique_ptr<Transfer> NcclMessages::start_send(const ConstElements& data, int to) {
  // Only read, because the direction is outgoing.
  Elements outgoing(const_cast<void*>(data.data), data.count, data.type, data.gpu, data.stream);
  return start(outgoing, lines_.context().rank, to);
}

std::unique_ptr<Transfer> NcclMessages::start_recv(const Elements& data, int from) {
  return start(data, from, lines_.context().rank);
}

std::unique_ptr<Transfer> NcclMessages::start(const Elements& data, int from, int to) {
  const std::lock_guard lock(mutex_);
  // `from` and `to` never change, so pending messages read them without the mutex.
  Channel& lane = channels_.try_emplace({from, to}, Channel{from, to}).first->second;
  auto crossing = std::make_unique<PendingMessage>(lines_, lane, data, lane.posted);
  ++lane.posted;
  return crossing;
}

}  // namespace drun::worker

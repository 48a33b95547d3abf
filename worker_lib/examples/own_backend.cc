// A backend of one's own, by name: how one for other hardware or another network comes in. This toy
// moves everything through the store; it does barrier, broadcast, all_gather and sums.
//
//     drun --standalone --nproc_per_node=4 ./own_backend
//
//     4 ranks over "notes": sum 10, from the last rank 3
//     reduce is refused: notes does not do reduce
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "drun/backend.h"
#include "drun/process_group.h"
#include "drun/record.h"

namespace {

using drun::Operation;
using Milliseconds = std::chrono::milliseconds;

// Each rank leaves a note at every collective, and reads those of the others.
class NotesBackend : public drun::Backend {
 public:
  explicit NotesBackend(const drun::BackendContext& context)
      : rank_(context.rank), size_(context.size), store_(context.store) {}

  std::string name() const override { return "notes"; }

  std::string refusal(const drun::Call& call) const override {
    if (call.gpu) return "notes does not reach memory of a GPU";
    switch (call.operation) {
      case Operation::Barrier:
      case Operation::Broadcast:
        return "";
      case Operation::AllGather:
        return call.is_uneven ? "notes does not do parts of different sizes" : "";
      case Operation::AllReduce:
        return call.op == drun::ReduceOp::Sum && call.type == drun::DataType::F32
                   ? ""
                   : "notes reduces nothing but sums of f32";
      default:
        return "notes does not do " + std::string(to_string(call.operation));
    }
  }

  void run(const drun::Call& call, const drun::Turn& turn) override {
    const std::size_t part_bytes = call.count * size_bytes(call.type);
    const bool brings = call.operation != Operation::Broadcast || call.root == rank_;
    leave(turn, brings ? std::string(static_cast<const char*>(call.input), part_bytes) : "");
    // Every rank reads every note, so that none is done before all have called.
    std::vector<std::string> notes;
    notes.reserve(static_cast<std::size_t>(size_));
    for (int from = 0; from < size_; ++from) notes.push_back(read(turn, from));
    char* output = static_cast<char*>(call.output);
    if (call.operation == Operation::Broadcast) {
      std::memcpy(output, notes[static_cast<std::size_t>(call.root)].data(), part_bytes);
    } else if (call.operation == Operation::AllGather) {
      for (const std::string& note : notes) {
        std::memcpy(output, note.data(), part_bytes);
        output += part_bytes;
      }
    } else if (call.operation == Operation::AllReduce) {
      add_up(notes, static_cast<float*>(call.output), call.count);
    }
  }

  void abort() noexcept override { is_aborted_ = true; }

 private:
  static std::string key(const drun::Turn& turn, int rank) {
    return std::to_string(turn.sequence) + "/" + std::to_string(rank);
  }
  static Milliseconds left_until(drun::Deadline deadline) {
    const auto left = deadline - std::chrono::steady_clock::now();
    return std::max(std::chrono::duration_cast<Milliseconds>(left), Milliseconds(1));
  }

  void leave(const drun::Turn& turn, const std::string& note) {
    try {
      store_->set(key(turn, rank_), note, left_until(turn.deadline));
    } catch (const drun::WorkerError& error) {
      throw drun::BackendFailure(error.kind(), {}, error.message());
    }
  }

  // In slices, because nothing wakes who waits for a store; a real backend can do better.
  std::string read(const drun::Turn& turn, int from) {
    while (!is_aborted_) {
      try {
        return store_->get(key(turn, from), std::min(left_until(turn.deadline), Milliseconds(50)));
      } catch (const drun::WorkerError& error) {
        const bool is_late = std::chrono::steady_clock::now() >= turn.deadline;
        if (error.kind() == drun::WorkerError::Kind::Timeout && !is_late) continue;
        throw drun::BackendFailure(error.kind(), from, error.message());
      }
    }
    throw drun::BackendFailure(drun::WorkerError::Kind::Broken, {}, "aborted");
  }

  // In rank order: the same bits on every rank.
  static void add_up(const std::vector<std::string>& notes, float* sums, std::size_t count) {
    std::fill_n(sums, count, 0.0f);
    for (const std::string& note : notes) {
      for (std::size_t i = 0; i < count; ++i) {
        float number = 0;
        std::memcpy(&number, note.data() + i * sizeof number, sizeof number);
        sums[i] += number;
      }
    }
  }

  const int rank_;
  const int size_;
  const std::shared_ptr<drun::KeyStore> store_;
  std::atomic<bool> is_aborted_{false};
};

void use(drun::ProcessGroup& group) {
  std::vector<float> sum{static_cast<float>(group.rank() + 1)};
  group.all_reduce(sum);
  std::vector<int> last{group.rank()};
  group.broadcast(last, group.size() - 1);
  if (static_cast<int>(sum[0]) != group.size() * (group.size() + 1) / 2 ||
      last[0] != group.size() - 1) {
    throw std::runtime_error("wrong result");
  }
  group.barrier();
  std::string refused;
  try {
    group.reduce(sum, /*root=*/0);
  } catch (const drun::WorkerError& error) {
    refused = error.message();
  }
  if (group.rank() != 0) return;
  std::cout << group.size() << " ranks over \"" << group.backend() << "\": sum " << sum[0]
            << ", from the last rank " << last[0] << "\nreduce is refused: " << refused << "\n"
            << std::flush;
}

}  // namespace

int main() {
  drun::register_backend("notes", [](const drun::BackendContext& context) {
    return std::make_unique<NotesBackend>(context);
  });
  return drun::record([] {
    drun::InitOptions options;
    options.backend = "notes";
    drun::ProcessGroup group = drun::init_process_group(options);
    use(group);
    group.barrier();
  });
}

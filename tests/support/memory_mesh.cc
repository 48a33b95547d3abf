#include "tests/support/memory_mesh.h"

#include <cstring>
#include <thread>

#include "worker_lib/algorithms/collectives.h"

namespace drun::test {

class MemoryExchange final : public worker::Exchange {
 public:
  MemoryExchange(MemoryMesh& mesh, int rank, std::uint64_t context)
      : Exchange(rank, mesh.size()), mesh_(mesh), context_(context) {}

 private:
  struct Started {
    MemoryMesh::Key key;
    std::size_t number = 0;
  };

  Handle start_send(int to, const void* data, std::size_t size_bytes) override {
    const std::lock_guard lock(mesh_.mutex_);
    ++mesh_.sent_count_;
    const MemoryMesh::Key key{context_, rank(), to, size_bytes};
    MemoryMesh::Line& line = mesh_.lines_[key];
    line.messages[line.sends].source = data;
    return remember({key, line.sends++});
  }
  Handle start_recv(int from, void* data, std::size_t size_bytes) override {
    const std::lock_guard lock(mesh_.mutex_);
    const MemoryMesh::Key key{context_, from, rank(), size_bytes};
    MemoryMesh::Line& line = mesh_.lines_[key];
    line.messages[line.recvs].target = data;
    return remember({key, line.recvs++});
  }
  void finish(Handle handle) override {
    const Started& started = started_[handle];
    std::unique_lock lock(mesh_.mutex_);
    auto& messages = mesh_.lines_[started.key].messages;
    MemoryMesh::Message& message = messages[started.number];
    if (!mesh_.changed_.wait_for(lock, MemoryMesh::kLimit,
                                 [&] { return message.source && message.target; })) {
      throw BackendFailure(WorkerError::Kind::Timeout, std::nullopt, "no rank came");
    }
    if (message.is_done) {
      messages.erase(started.number);  // the second of the two ends
      return;
    }
    std::memcpy(message.target, message.source, std::get<3>(started.key));
    message.is_done = true;
  }

  Handle remember(const Started& started) {
    started_.push_back(started);
    mesh_.changed_.notify_all();
    return started_.size() - 1;
  }

  MemoryMesh& mesh_;
  std::uint64_t context_;
  std::vector<Started> started_;
};

namespace {

class MemoryBackend final : public Backend {
 public:
  MemoryBackend(std::shared_ptr<MemoryMesh> mesh, int rank) : mesh_(std::move(mesh)), rank_(rank) {}

  std::string name() const override { return "memory"; }
  std::string refusal(const Call&) const override { return ""; }
  void run(const Call& call, const Turn& turn) override {
    worker::run_collective(*mesh_->exchange(rank_, turn.sequence), call);
  }
  void abort() noexcept override {}

 private:
  std::shared_ptr<MemoryMesh> mesh_;
  int rank_;
};

}  // namespace

std::unique_ptr<worker::Exchange> MemoryMesh::exchange(int rank, std::uint64_t context) {
  return std::make_unique<MemoryExchange>(*this, rank, context);
}

std::size_t MemoryMesh::sent_count() const {
  const std::lock_guard lock(mutex_);
  return sent_count_;
}

void run_threads(int size, const std::function<void(int rank)>& body) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

std::unique_ptr<Backend> make_memory_backend(std::shared_ptr<MemoryMesh> mesh, int rank) {
  return std::make_unique<MemoryBackend>(std::move(mesh), rank);
}

}  // namespace drun::test

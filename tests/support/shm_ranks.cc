#include "tests/support/shm_ranks.h"

#include <poll.h>
#include <unistd.h>

#include <exception>
#include <mutex>
#include <stdexcept>

#include "tests/support/catch.h"
#include "worker_lib/shm/shm_backend.h"

namespace drun::test {
namespace {

// Watches the peers until `stop` is readable.
void watch(Backend& backend, int stop) {
  std::vector<pollfd> waiting = {{.fd = stop, .events = POLLIN, .revents = 0}};
  const std::vector<Lifeline> lines = backend.lifelines();
  for (const Lifeline& line : lines) {
    waiting.push_back({.fd = line.fd, .events = POLLIN, .revents = 0});
  }
  while (poll(waiting.data(), waiting.size(), -1) >= 0 && waiting[0].revents == 0) {
    for (std::size_t i = 1; i < waiting.size(); ++i) {
      if (waiting[i].revents == 0) continue;
      backend.tell_lost(lines[i - 1].rank);
      waiting[i].fd = -1;
    }
  }
}

}  // namespace

ShmRank::ShmRank(std::unique_ptr<Backend> backend, int rank, int size)
    : backend_(std::move(backend)), rank_(rank), size_(size) {
  if (pipe(stop_) != 0) throw std::runtime_error("no pipe");
  watcher_ = std::thread([this] { watch(*backend_, stop_[0]); });
}

ShmRank::~ShmRank() {
  close(stop_[1]);
  watcher_.join();
  close(stop_[0]);
}

Turn ShmRank::turn(std::chrono::milliseconds limit) {
  return {.sequence = ++sequence_, .deadline = soon(limit)};
}

void ShmRank::send(const ConstElements& data, int to, int tag) {
  finish(backend_->start_send(data, to, tag));
}

int ShmRank::recv(const Elements& data, std::optional<int> from, int tag) {
  const std::unique_ptr<Transfer> message = backend_->start_recv(data, from, tag);
  return message ? message->finish(soon()) : from.value();
}

void finish(const std::unique_ptr<Transfer>& message) {
  if (message) message->finish(soon());
}

BackendContext shm_context(int rank, int size, std::uint16_t store_port,
                           std::chrono::milliseconds limit) {
  BackendContext context;
  context.rank = rank;
  context.size = size;
  context.node_of.assign(static_cast<std::size_t>(size), 0);
  context.store = connect_key_store("127.0.0.1", store_port, limit);
  context.deadline = soon(limit);
  return context;
}

std::vector<RankEnd> run_shm_processes(int size, const ShmBody& body, bool reads_peers) {
  const StoreProcess store;
  return run_ranks({.size = size, .port = store.port()}, [&](int rank, const Say& say) {
    worker::shm::Parts parts = worker::shm::connect_parts(shm_context(rank, size, store.port()));
    parts.reads_peers = reads_peers;
    ShmRank self(worker::shm::make_backend(std::move(parts)), rank, size);
    body(self, say);
    self.barrier();  // no rank may leave before all are done
  });
}

void run_shm_threads(int size, const std::function<void(ShmRank& rank)>& body) {
  namespace shm = worker::shm;
  const UniqueFd memory = shm::create_memory(shm::Segment::bytes_for(size));
  const UniqueFd regions = shm::create_memory(0);
  const shm::Segment segment(memory.get(), size);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      ShmRank self(shm::make_backend({.rank = rank,
                                      .segment = segment,
                                      .regions = UniqueFd(dup(regions.get())),
                                      .reads_peers = false}),
                   rank, size);
      try {
        body(self);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
        self.backend().abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

std::string failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const BackendFailure& failure) {
    return std::string(to_string(failure.kind)) +
           (failure.peer ? " " + std::to_string(*failure.peer) : "") + ": " + failure.what();
  }
  return "no failure";
}

std::string ShmRank::failure_of(const std::function<void()>& action) {
  const std::string text = test::failure_of(action);
  if (text != "no failure") backend_->abort();
  return text;
}

}  // namespace drun::test

#include "worker_lib/core/pulse.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <ctime>

#include "rendezvous/base/unique_fd.h"

namespace drun::worker {
namespace {

using Count = std::atomic_ref<std::uint64_t>;

// Another process can read it at any time, and so can a thread whose operation uses the same entry.
template <typename Number>
void put(Number& place, Number value) {
  std::atomic_ref<Number>(place).store(value, std::memory_order_relaxed);
}

// Simultaneous beats of two threads may count as one; only the change matters.
void beat(PulsePage& page) {
  put(page.beats, Count(page.beats).load(std::memory_order_relaxed) + 1);
}

std::uint64_t coarse_now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

PulseEntry& entry_of(PulsePage& page, std::uint64_t number) {
  return page.entries[number % kPulseEntries];
}

}  // namespace

Pulse& Pulse::own() {
  // Never destroyed, because threads can end operations until the process exits.
  static Pulse& own = *new Pulse(std::getenv(kHeartbeatVariable));
  return own;
}

Pulse::Pulse(const char* path) {
  if (path == nullptr || *path == '\0') return;
  const UniqueFd file(::open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat about {};
  // A store to a shorter file would raise SIGBUS.
  if (!file || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) ||
      about.st_size < static_cast<off_t>(kPulseBytes))
    return;
  void* memory = ::mmap(nullptr, kPulseBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return;
  page_ = static_cast<PulsePage*>(memory);
  page_->magic = kPulseMagic;
  beat(*page_);
}

Pulse::~Pulse() {
  if (page_ != nullptr) ::munmap(page_, kPulseBytes);
}

std::uint64_t Pulse::begin(const PulseOperation& operation) {
  if (page_ == nullptr) return 0;
  const std::uint64_t number = Count(page_->begun).fetch_add(1, std::memory_order_relaxed) + 1;
  PulseEntry& entry = entry_of(*page_, number);
  put(entry.number, std::uint64_t{0});
  put(entry.sequence, operation.sequence);
  put(entry.bytes, operation.bytes);
  put(entry.group, operation.group);
  put(entry.kind, operation.kind);
  put(entry.has_ended, std::uint16_t{0});
  Count(entry.number).store(number, std::memory_order_release);
  if (operation.group == 0 && operation.sequence > 0) put(page_->world_arrived, operation.sequence);
  beat(*page_);
  return number;
}

void Pulse::end(std::uint64_t number) {
  if (number == 0) return;
  PulseEntry& entry = entry_of(*page_, number);
  // A later operation may use the entry by now.
  if (Count(entry.number).load(std::memory_order_relaxed) == number)
    put(entry.has_ended, std::uint16_t{1});
  beat(*page_);
}

std::uint64_t Pulse::begin_wait() {
  if (page_ == nullptr) return 0;
  const std::uint64_t now_ns = coarse_now_ns();
  put(page_->waiting_since_ns, now_ns);
  return now_ns;
}

// Of calls of two threads at the same time, one may be lost.
void Pulse::end_wait(std::uint64_t since_ns) {
  if (since_ns == 0) return;
  put(page_->waiting_since_ns, std::uint64_t{0});
  const std::uint64_t before_ns = Count(page_->waited_ns).load(std::memory_order_relaxed);
  Count(page_->waited_ns)
      .store(before_ns + (coarse_now_ns() - since_ns), std::memory_order_release);
}

}  // namespace drun::worker

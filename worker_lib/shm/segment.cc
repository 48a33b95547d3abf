#include "worker_lib/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "drun/backend.h"
#include "worker_lib/base/process.h"

namespace drun::worker::shm {
namespace {

[[noreturn]] void fail(const std::string& what, std::size_t size_bytes) {
  throw BackendFailure(WorkerError::Kind::System,
                       "cannot " + what + " " + std::to_string(size_bytes) +
                           " bytes of shared memory: " + error_text(errno));
}

// The largest page size of common machines.
constexpr std::uint64_t kPageBytes = 64 * 1024;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 46;

std::uint64_t whole_pages(std::uint64_t size_bytes) {
  if (size_bytes > kMostBytes) {
    throw BackendFailure(WorkerError::Kind::System,
                         "no machine has " + std::to_string(size_bytes) + " bytes of memory");
  }
  return std::max<std::uint64_t>((size_bytes + kPageBytes - 1) / kPageBytes, 1) * kPageBytes;
}

// The beginning of each part, and the end of the last.
std::vector<std::uint64_t> ends_of(const std::vector<std::uint64_t>& part_bytes) {
  std::vector<std::uint64_t> ends = {0};
  for (const std::uint64_t bytes : part_bytes) ends.push_back(ends.back() + whole_pages(bytes));
  return ends;
}

}  // namespace

UniqueFd create_memory(std::size_t size_bytes) {
  // Linux 6.3 and later refuse memory that may hold programs where vm.memfd_noexec is 2; earlier
  // kernels do not know the flag.
  constexpr unsigned kNoExecSeal = 0x8;  // MFD_NOEXEC_SEAL, which glibc before 2.38 lacks
  UniqueFd fd(memfd_create("drun", MFD_CLOEXEC | MFD_ALLOW_SEALING | kNoExecSeal));
  if (!fd && errno == EINVAL) fd = UniqueFd(memfd_create("drun", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) fail("create", size_bytes);
  grow_memory(fd.get(), size_bytes);
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0) fail("seal", size_bytes);
  return fd;
}

void grow_memory(int fd, std::size_t size_bytes) {
  if (ftruncate(fd, static_cast<off_t>(size_bytes)) != 0) fail("make", size_bytes);
}

Mapping::Mapping(int fd, std::size_t offset, std::size_t size_bytes) : size_bytes_(size_bytes) {
  void* at =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (at == MAP_FAILED) fail("map", size_bytes);
  data_ = static_cast<std::byte*>(at);
}

Mapping::~Mapping() { munmap(data_, size_bytes_); }

struct Regions::Region {
  Region(std::shared_ptr<const UniqueFd> file, std::uint64_t offset,
         std::vector<std::uint64_t> part_ends, int rank)
      : memory(std::move(file)),
        begin(offset),
        ends(std::move(part_ends)),
        own(static_cast<std::size_t>(rank)),
        mapping(memory->get(), begin, ends.back()) {
    // Allocates now, so that failure is reported here, and on the rank that will use the part most.
    const int error = posix_fallocate(memory->get(), static_cast<off_t>(begin + ends[own]),
                                      static_cast<off_t>(ends[own + 1] - ends[own]));
    if (error != 0) {
      throw BackendFailure(WorkerError::Kind::System,
                           "cannot get " + std::to_string(ends[own + 1] - ends[own]) +
                               " bytes of shared memory: " + std::strerror(error));
    }
  }
  ~Region() {
    fallocate(memory->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(begin + ends[own]), static_cast<off_t>(ends[own + 1] - ends[own]));
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  std::shared_ptr<const UniqueFd> memory;
  std::uint64_t begin;
  std::vector<std::uint64_t> ends;
  std::size_t own;
  Mapping mapping;
  std::uint32_t number = 0;
};

Regions::Regions(UniqueFd memory, int rank)
    : memory_(std::make_shared<const UniqueFd>(std::move(memory))), rank_(rank) {}

void Regions::grow(const std::vector<std::uint64_t>& part_bytes) {
  grow_memory(memory_->get(), end_bytes_ + ends_of(part_bytes).back());
}

std::shared_ptr<void> Regions::map(const std::vector<std::uint64_t>& part_bytes) {
  std::vector<std::uint64_t> ends = ends_of(part_bytes);
  const std::uint64_t begin = std::exchange(end_bytes_, end_bytes_ + ends.back());
  const auto region = std::make_shared<Region>(memory_, begin, std::move(ends), rank_);
  region->number = next_region_++;
  const std::lock_guard lock(mutex_);
  regions_.remove_if([](const auto& each) { return each.expired(); });
  regions_.push_back(region);
  return {region, region->mapping.data() + region->ends[region->own]};
}

std::optional<Place> Regions::find(const void* data, std::size_t size_bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::lock_guard lock(mutex_);
  for (const std::weak_ptr<Region>& each : regions_) {
    const std::shared_ptr<Region> region = each.lock();
    if (!region) continue;
    const auto begin =
        reinterpret_cast<std::uintptr_t>(region->mapping.data()) + region->ends[region->own];
    const std::uint64_t part = region->ends[region->own + 1] - region->ends[region->own];
    if (address < begin || address - begin > part || part - (address - begin) < size_bytes)
      continue;
    return Place{.region = region->number, .offset = address - begin};
  }
  return std::nullopt;
}

std::byte* Regions::at(int rank, const Place& place, std::size_t size_bytes) {
  const auto index = static_cast<std::size_t>(rank);
  const std::lock_guard lock(mutex_);
  for (const std::weak_ptr<Region>& each : regions_) {
    const std::shared_ptr<Region> region = each.lock();
    if (!region || region->number != place.region) continue;
    const std::uint64_t part = region->ends[index + 1] - region->ends[index];
    if (place.offset > part || part - place.offset < size_bytes) return nullptr;
    return region->mapping.data() + region->ends[index] + place.offset;
  }
  return nullptr;
}

}  // namespace drun::worker::shm

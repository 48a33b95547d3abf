#include "worker_lib/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "drun/backend.h"

namespace drun::worker::shm {
namespace {

[[noreturn]] void fail(const std::string& what, std::size_t size_bytes) {
  throw BackendFailure(WorkerError::Kind::System, std::nullopt,
                       "cannot " + what + " " + std::to_string(size_bytes) +
                           " bytes of shared memory: " + std::strerror(errno));
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

}  // namespace drun::worker::shm

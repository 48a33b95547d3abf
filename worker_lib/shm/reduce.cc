#include "worker_lib/shm/reduce.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace drun::worker::shm {
namespace {

// A block's running result stays in the first-level cache until the last source has come to it.
constexpr std::size_t kBlockBytes = 8 * 1024;

}  // namespace

Reduction::Reduction(const Call& call, int ranks)
    : function_(reduce_function(call.type, call.op)),
      type_(call.type),
      element_bytes_(size_bytes(call.type)),
      divisor_(call.op == ReduceOp::Avg ? ranks : 1) {
  assert(function_ != nullptr);
}

void Reduction::operator()(std::byte* out, const Sources& sources, std::size_t count,
                           const std::vector<std::byte*>& copies) const {
  const std::size_t block = kBlockBytes / element_bytes_;
  for (std::size_t done = 0; done < count; done += block) {
    const std::size_t now = std::min(block, count - done);
    const std::size_t begin_bytes = done * element_bytes_;
    reduce_block(out + begin_bytes, sources, begin_bytes, now);
    for (std::byte* copy : copies) {
      std::memcpy(copy + begin_bytes, out + begin_bytes, now * element_bytes_);
    }
  }
}

// Only the last step writes to `out`, which may be a source that an earlier step would spoil.
void Reduction::reduce_block(std::byte* out, const Sources& sources, std::size_t begin_bytes,
                             std::size_t count) const {
  alignas(64) std::byte scratch[kBlockBytes];
  const std::byte* left = sources.front() + begin_bytes;
  for (std::size_t i = 1; i < sources.size(); ++i) {
    std::byte* to = i + 1 == sources.size() ? out : scratch;
    function_(to, left, sources[i] + begin_bytes, count);
    left = to;
  }
  if (sources.size() == 1 && out != left) std::memcpy(out, left, count * element_bytes_);
  if (divisor_ != 1) divide(out, type_, count, divisor_);
}

}  // namespace drun::worker::shm

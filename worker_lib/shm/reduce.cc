#include "worker_lib/shm/reduce.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace drun::worker::shm {
namespace {

// A block's running result stays in the first-level cache until the last source is added.
constexpr std::size_t kBlockBytes = 8 * 1024;

}  // namespace

Reduction::Reduction(const Call& call, int ranks)
    : function_(reduce_function(call.type, call.op)),
      type_(call.type),
      element_shift_(std::countr_zero(size_bytes(call.type))),
      divisor_(call.op == ReduceOp::Avg ? ranks : 1) {
  assert(function_ != nullptr);
}

void Reduction::operator()(std::byte* out, const Sources& sources, std::size_t bytes,
                           const std::vector<std::byte*>& copies) const {
  for (std::size_t done = 0; done < bytes; done += kBlockBytes) {
    const std::size_t now = std::min(kBlockBytes, bytes - done);
    reduce_block(out + done, sources, done, now);
    for (std::byte* copy : copies) std::memcpy(copy + done, out + done, now);
  }
}

// Only the last step writes to `out`, because `out` may be a source that earlier steps still read.
void Reduction::reduce_block(std::byte* out, const Sources& sources, std::size_t begin_bytes,
                             std::size_t bytes) const {
  const std::size_t count = bytes >> element_shift_;
  alignas(64) std::byte scratch[kBlockBytes];
  const std::byte* left = sources.front() + begin_bytes;
  for (std::size_t i = 1; i < sources.size(); ++i) {
    std::byte* to = i + 1 == sources.size() ? out : scratch;
    function_(to, left, sources[i] + begin_bytes, count);
    left = to;
  }
  if (sources.size() == 1 && out != left) std::memcpy(out, left, bytes);
  if (divisor_ != 1) divide(out, type_, count, divisor_);
}

}  // namespace drun::worker::shm

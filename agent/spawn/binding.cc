#include "agent/spawn/binding.h"

#include <sched.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>

#include "agent/spawn/raw_syscall.h"

namespace drun::agent {
namespace {

constexpr std::size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;

// linux/mempolicy.h's numbers; libc has no header for them.
constexpr int kPreferred = 1;
constexpr int kBind = 2;
constexpr int kLocal = 4;
constexpr int kPreferredMany = 5;  // since Linux 5.15

std::vector<unsigned long> mask_of(const std::vector<int>& numbers) {
  if (numbers.empty()) return {};
  const auto highest = static_cast<std::size_t>(*std::max_element(numbers.begin(), numbers.end()));
  std::vector<unsigned long> mask(highest / kWordBits + 1, 0);
  for (const int number : numbers) {
    const auto bit = static_cast<std::size_t>(number);
    mask[bit / kWordBits] |= 1UL << (bit % kWordBits);
  }
  return mask;
}

int set_memory_policy(int mode, const unsigned long* mask, std::size_t words) {
  // The kernel takes one bit off the number it is given (set_mempolicy(2), bugs).
  const unsigned long bits = mask == nullptr ? 0 : words * kWordBits + 1;
  return static_cast<int>(
      -raw_syscall(SYS_set_mempolicy, mode, raw_argument(mask), static_cast<long>(bits)));
}

}  // namespace

Binding::Binding(const WorkerPlacement* placement) {
  if (placement == nullptr) return;
  cpus_ = mask_of(placement->cpus);
  nodes_ = mask_of(placement->memory_nodes);
  has_one_node_ = placement->memory_nodes.size() == 1;
  memory_ = nodes_.empty() ? MemoryPolicy::None : placement->memory;
}

int Binding::apply_cpus() const {
  if (cpus_.empty()) return 0;
  const auto size_bytes = static_cast<long>(cpus_.size() * sizeof(unsigned long));
  const long result = raw_syscall(SYS_sched_setaffinity, 0, size_bytes, raw_argument(cpus_.data()));
  return result < 0 ? static_cast<int>(-result) : 0;
}

int Binding::apply_memory() const {
  if (memory_ == MemoryPolicy::None) return 0;
  if (memory_ == MemoryPolicy::Strict)
    return set_memory_policy(kBind, nodes_.data(), nodes_.size());
  if (has_one_node_) return set_memory_policy(kPreferred, nodes_.data(), nodes_.size());
  const int error = set_memory_policy(kPreferredMany, nodes_.data(), nodes_.size());
  return error == EINVAL ? set_memory_policy(kLocal, nullptr, 0) : error;
}

}  // namespace drun::agent

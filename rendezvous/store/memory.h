// core. How much memory a store's clients make it keep, and how much they may: --store-memory.
//
// Rule:    every key, value, queue's entry, wait for a key and watch counts as its bytes and 128.
//          What has been read and is not a whole request yet, and what is to be sent, counts as its
//          bytes. A value counts as long as anybody holds it, an answer that is not sent included.
// Cost:    O(1) each.
// Owner:   Store; values hold on to it.   Thread: any, one at a time.
#pragma once

#include <cstddef>
#include <string>

namespace drun {

constexpr std::size_t kStoreEntryBytes = 128;

class StoreMemory {
 public:
  explicit StoreMemory(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  bool has_room(std::size_t bytes) const { return !is_over() && bytes <= limit_bytes_ - used_; }
  bool is_over() const { return used_ > limit_bytes_; }
  void take(std::size_t bytes) { used_ += bytes; }
  void give(std::size_t bytes) { used_ -= bytes; }
  // Something that changes its size.
  void change(std::size_t& from, std::size_t to) {
    used_ = used_ - from + to;
    from = to;
  }

  std::size_t used_bytes() const { return used_; }
  std::size_t limit_bytes() const { return limit_bytes_; }

 private:
  const std::size_t limit_bytes_;
  std::size_t used_ = 0;
};

// Why a client loses its connection: "SET: ...".
inline std::string too_much_memory(const std::string& deed, const StoreMemory& memory) {
  return deed + " would take the store beyond its limit of " +
         std::to_string(memory.limit_bytes()) + " bytes; raise --store-memory";
}

}  // namespace drun

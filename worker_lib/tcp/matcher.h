// core. Which message meets which receive: those of one sender and slot in order; a receive from
// any rank meets the first message of its slot that has arrived or arrives.
//
// Owner:   keeps pointers to the receives that wait; withdraw() before one goes.
// Thread:  one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace drun::worker::tcp {

// A receive that has been started.
struct Receive {
  std::optional<int> from{};  // absent: from any
  std::uint64_t slot = 0;
  char* data = nullptr;
  std::size_t room_bytes = 0;

  std::uint64_t order = 0;  // when it was started
  // Once a message has met it:
  std::optional<int> sender{};
  std::size_t size_bytes = 0;
  std::size_t got_bytes = 0;
  bool is_done = false;
  std::string misfit{};  // why it cannot take that message; empty: it can
};

// A message that came before its receive.
struct Arrival {
  int from = 0;
  std::uint64_t slot = 0;
  std::size_t size_bytes = 0;
  std::optional<std::uint64_t> number{};  // it is only announced: Ask
  std::vector<char> data{};
  std::size_t got_bytes = 0;
  std::uint64_t order = 0;
  Receive* receive = nullptr;  // has met it meanwhile, and gets it when all of it is here
};

class Matcher {
 public:
  // The message that waits for it; null: none does, and the receive waits.
  std::shared_ptr<Arrival> post(Receive& receive);
  // The receive that waits for such a message; null: none does.
  Receive* meet(int from, std::uint64_t slot);
  // False: too many of that rank wait already.
  bool keep(const std::shared_ptr<Arrival>& arrival);
  void withdraw(const Receive& receive);

 private:
  struct Place {
    std::uint64_t slot = 0;
    int from = 0;  // kAny: of receives from any
    bool operator==(const Place&) const = default;
  };
  struct PlaceHash {
    std::size_t operator()(const Place& place) const {
      return static_cast<std::size_t>(
          (place.slot ^ static_cast<std::uint64_t>(static_cast<unsigned>(place.from)) << 17) *
          0x9e3779b97f4a7c15);
    }
  };
  static constexpr int kAny = -1;

  std::shared_ptr<Arrival> take(const Place& place);
  std::shared_ptr<Arrival> first_of_any(std::uint64_t slot);

  std::uint64_t order_ = 0;
  std::unordered_map<Place, std::deque<Receive*>, PlaceHash> waiting_{};
  std::unordered_map<Place, std::deque<std::shared_ptr<Arrival>>, PlaceHash> arrived_{};
  std::unordered_map<int, std::size_t> arrivals_of_{};
};

}  // namespace drun::worker::tcp

// core. Matches messages with receives. A slot is a 64-bit number that identifies messages
// (worker_lib/mesh/slots.h). Messages of one sender and slot are matched in order. A receive from
// any rank gets the first message of its slot that has arrived or arrives.
//
// Owner:   keeps pointers to waiting receives; call withdraw() before destroying one.
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

// A started receive.
struct Receive {
  std::optional<int> from{};  // absent: from any
  std::uint64_t slot = 0;
  char* data = nullptr;
  std::size_t room_bytes = 0;

  std::uint64_t order = 0;  // increases with each receive and message
  // Set once it is matched with a message:
  std::optional<int> sender{};
  std::size_t size_bytes = 0;
  std::size_t got_bytes = 0;
  bool is_done = false;
  std::string misfit{};  // why the message does not fit; empty: it fits
};

// A message that arrived before its receive.
struct Arrival {
  int from = 0;
  std::uint64_t slot = 0;
  std::size_t size_bytes = 0;
  std::optional<std::uint64_t>
      number{};  // set: only announced, and its data must be requested (Ask)
  std::vector<char> data{};
  std::size_t got_bytes = 0;
  std::uint64_t order = 0;
  Receive* receive = nullptr;  // matched since then; gets the message when all of it has arrived
};

class Matcher {
 public:
  // Returns the message that is waiting for this receive; null: none, and the receive now waits.
  std::shared_ptr<Arrival> post(Receive& receive);
  // Removes and returns the receive that is waiting for this message; null: none.
  Receive* meet(int from, std::uint64_t slot);
  // Keeps a message until its receive is posted. False if too many of that rank are waiting.
  bool keep(const std::shared_ptr<Arrival>& arrival);
  void withdraw(const Receive& receive);

 private:
  struct Place {
    std::uint64_t slot = 0;
    int from = 0;  // kAny: receives from any rank
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

// core. Matches messages with receives, for any transport. A slot is a 64-bit number that
// identifies messages. Messages of one sender and slot are matched in order. A receive from any
// rank gets the first message of its slot that has arrived or arrives.
//
// A receive from any rank can wait on two transports at the same time: whichever matches it first
// takes its Claim, and the other one then skips it.
//
// Thread:  one at a time; a Claim: any.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "drun/backend.h"

namespace drun::worker {

class Claim {
 public:
  // The side that has taken it; absent: none.
  std::optional<int> owner() const {
    const int side = side_;
    return side < 0 ? std::nullopt : std::optional<int>(side);
  }
  // False if another side has it.
  bool take(int side) {
    int none = -1;
    return side_.compare_exchange_strong(none, side);
  }

 private:
  std::atomic<int> side_ = -1;
};

// The part of a receive that waits on one transport. Without a claim, it is the only one.
struct ClaimSide {
  Claim* claim = nullptr;
  int side = 0;

  bool take() const { return claim == nullptr || claim->take(side); }
};

// A backend whose receives from any rank can share a claim with another backend's.
class SharesReceives {
 public:
  virtual ~SharesReceives() = default;
  // As Backend::start_recv, from any rank. The claim must outlive the Transfer.
  virtual std::unique_ptr<Transfer> start_recv_any(const Elements& data, int tag,
                                                   ClaimSide claim) = 0;
};

// `Receive`: a pointer to a struct with optional<int> from, slot, order and claim. It is kept while
// the receive waits; call withdraw() before destroying one. `Arrival`: a shared_ptr to a struct
// with int from, slot and order.
template <typename Receive, typename Arrival>
class Matcher {
 public:
  // `most_kept`: messages of one sender without a receive.
  explicit Matcher(std::size_t most_kept) : most_kept_(most_kept) {}

  // Returns the message that is waiting for this receive; null: none, and the receive now waits, or
  // has been matched elsewhere.
  Arrival post(const Receive& receive) {
    receive->order = ++order_;
    const std::optional<Place> place =
        receive->from ? of_arrived({receive->slot, *receive->from}) : first_of_any(receive->slot);
    if (place) return receive->claim.take() ? pop(arrived_, *place) : nullptr;
    waiting_[{receive->slot, receive->from.value_or(kAny)}].push_back(receive);
    return nullptr;
  }
  // Removes and returns the receive that is waiting for this message; null: none.
  Receive meet(int from, std::uint64_t slot) {
    while (true) {
      std::deque<Receive>* const own = at(waiting_, {slot, from});
      std::deque<Receive>* const any = at(waiting_, {slot, kAny});
      if (own == nullptr && any == nullptr) return nullptr;
      const bool is_own =
          any == nullptr || (own != nullptr && own->front()->order < any->front()->order);
      Receive first = pop(waiting_, {slot, is_own ? from : kAny});
      if (first->claim.take()) return first;
    }
  }
  // Keeps a message until its receive is posted. False if too many of that rank are waiting.
  bool keep(const Arrival& arrival) {
    std::size_t& count = arrivals_of_[arrival->from];
    if (count >= most_kept_) return false;
    ++count;
    arrival->order = ++order_;
    arrived_[{arrival->slot, arrival->from}].push_back(arrival);
    return true;
  }
  void withdraw(const Receive& receive) {
    const Place place{receive->slot, receive->from.value_or(kAny)};
    std::deque<Receive>* const receives = at(waiting_, place);
    if (receives == nullptr) return;
    std::erase(*receives, receive);
    drop_empty(waiting_, place);
  }
  // Whether a receive or a message of that rank and slot would come before a new one.
  bool has_any(int from, std::uint64_t slot) {
    return at(waiting_, {slot, from}) != nullptr || at(waiting_, {slot, kAny}) != nullptr ||
           at(arrived_, {slot, from}) != nullptr;
  }

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
  template <typename Each>
  using Places = std::unordered_map<Place, std::deque<Each>, PlaceHash>;
  static constexpr int kAny = -1;
  // Places that are empty again are kept for the next message, up to this number, because making
  // one takes longer than a short message.
  static constexpr std::size_t kMostEmpty = 256;

  // Null: nothing is there.
  template <typename Each>
  static std::deque<Each>* at(Places<Each>& places, const Place& place) {
    const auto found = places.find(place);
    return found == places.end() || found->second.empty() ? nullptr : &found->second;
  }
  template <typename Each>
  static void drop_empty(Places<Each>& places, const Place& place) {
    if (places.size() > kMostEmpty && at(places, place) == nullptr) places.erase(place);
  }
  template <typename Each>
  Each pop(Places<Each>& places, const Place& place) {
    std::deque<Each>& all = places.find(place)->second;
    Each first = std::move(all.front());
    all.pop_front();
    drop_empty(places, place);
    if constexpr (std::is_same_v<Each, Arrival>) --arrivals_of_[place.from];
    return first;
  }
  std::optional<Place> of_arrived(const Place& place) {
    return at(arrived_, place) != nullptr ? std::optional<Place>(place) : std::nullopt;
  }
  // Of all senders; receives from any are rare.
  std::optional<Place> first_of_any(std::uint64_t slot) {
    std::optional<Place> best;
    std::uint64_t order = 0;
    for (const auto& [from, count] : arrivals_of_) {
      const Place place{slot, from};
      std::deque<Arrival>* const found = count > 0 ? at(arrived_, place) : nullptr;
      if (found == nullptr || (best && found->front()->order > order)) continue;
      best = place;
      order = found->front()->order;
    }
    return best;
  }

  const std::size_t most_kept_;
  std::uint64_t order_ = 0;
  Places<Receive> waiting_{};
  Places<Arrival> arrived_{};
  std::unordered_map<int, std::size_t> arrivals_of_{};
};

}  // namespace drun::worker

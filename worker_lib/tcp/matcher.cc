#include "worker_lib/tcp/matcher.h"

#include <algorithm>

#include "worker_lib/tcp/frames.h"

namespace drun::worker::tcp {

std::shared_ptr<Arrival> Matcher::take(const Place& place) {
  const auto found = arrived_.find(place);
  std::shared_ptr<Arrival> first = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) arrived_.erase(found);
  --arrivals_of_[place.from];
  return first;
}

// Of all senders; receives from any are rare.
std::shared_ptr<Arrival> Matcher::first_of_any(std::uint64_t slot) {
  std::optional<Place> best;
  std::uint64_t order = 0;
  for (const auto& [from, count] : arrivals_of_) {
    const Place place{slot, from};
    const auto found = count > 0 ? arrived_.find(place) : arrived_.end();
    if (found == arrived_.end()) continue;
    if (best && found->second.front()->order > order) continue;
    best = place;
    order = found->second.front()->order;
  }
  return best ? take(*best) : nullptr;
}

std::shared_ptr<Arrival> Matcher::post(Receive& receive) {
  receive.order = ++order_;
  if (receive.from) {
    const Place place{receive.slot, *receive.from};
    if (arrived_.contains(place)) return take(place);
    waiting_[place].push_back(&receive);
    return nullptr;
  }
  if (std::shared_ptr<Arrival> first = first_of_any(receive.slot)) return first;
  waiting_[{receive.slot, kAny}].push_back(&receive);
  return nullptr;
}

Receive* Matcher::meet(int from, std::uint64_t slot) {
  const auto own = waiting_.find({slot, from});
  const auto any = waiting_.find({slot, kAny});
  if (own == waiting_.end() && any == waiting_.end()) return nullptr;
  const bool is_own =
      any == waiting_.end() ||
      (own != waiting_.end() && own->second.front()->order < any->second.front()->order);
  const auto found = is_own ? own : any;
  Receive* const first = found->second.front();
  found->second.pop_front();
  if (found->second.empty()) waiting_.erase(found);
  return first;
}

bool Matcher::keep(const std::shared_ptr<Arrival>& arrival) {
  std::size_t& count = arrivals_of_[arrival->from];
  if (count >= kMostAnnounced) return false;
  ++count;
  arrival->order = ++order_;
  arrived_[{arrival->slot, arrival->from}].push_back(arrival);
  return true;
}

void Matcher::withdraw(const Receive& receive) {
  const auto found = waiting_.find({receive.slot, receive.from.value_or(kAny)});
  if (found == waiting_.end()) return;
  std::erase(found->second, &receive);
  if (found->second.empty()) waiting_.erase(found);
}

}  // namespace drun::worker::tcp

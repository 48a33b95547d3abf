#include "rendezvous/election/council.h"

#include <utility>

#include "rendezvous/random_instance.h"
#include "rendezvous/server_specs.h"

namespace drun::rendezvous {
namespace {

ElectionSpec election_spec(const JoinSpec& spec) {
  return {.run_id = spec.run_id,
          .seats = to_string(spec.seats),
          .seat = static_cast<int>(*spec.seat),
          .seat_count = static_cast<int>(spec.seats.size()),
          .instance = random_instance(),
          .lease = election_lease(spec)};
}

}  // namespace

Council::Council(asio::io_context& io, const JoinSpec& spec,
                 const std::shared_ptr<const TlsContext>& tls, const Log& log, Listener& listener)
    : timer_(io),
      log_(log),
      seats_(spec.seats),
      listener_(&listener),
      state_(open_election(election_spec(spec))) {
  for (std::size_t seat = 0; seat < seats_.size(); ++seat) {
    if (seat == *spec.seat)
      links_.emplace_back();
    else
      links_.push_back(std::make_unique<SeatLink>(io, static_cast<int>(seat), seats_[seat], tls,
                                                  log, static_cast<SeatLink::Listener&>(*this)));
  }
}

void Council::stop() {
  listener_ = nullptr;
  timer_.cancel();
  for (const auto& link : links_) {
    if (link) link->hang_up();
  }
}

bool Council::leads() {
  const Time now = LeaseClock::now();
  if (timer_.is_overdue(now)) handle(ElectionTick{});
  return is_leading(state_, now);
}

void Council::handle(const ElectionEvent& event) {
  if (listener_ == nullptr) return;
  for (const ElectionAction& action : step(state_, event, LeaseClock::now())) {
    if (listener_ == nullptr) return;
    std::visit([this](const auto& deed) { perform(deed); }, action);
  }
  if (listener_ == nullptr) return;
  timer_.set(deadline(state_), [self = shared_from_this()] { self->handle(ElectionTick{}); });
}

void Council::perform(const RefuseBallot& refusal) {
  listener_->on_refusal(refusal.caller, refusal.error);
}

void Council::perform(const Following& following) {
  listener_->on_following(seats_[static_cast<std::size_t>(following.seat)], following.term);
}

}  // namespace drun::rendezvous

#include "worker_lib/tcp/messages.h"

#include <cstring>
#include <utility>

namespace drun::worker::tcp {

void Messages::start(Send& send) {
  connections_.check_alive();
  connections_.call(send.to);
  if (connections_.is_gone(send.to)) throw connections_.loss_of(send.to);
  Outbox& out = connections_.out(send.to);
  std::size_t& ahead_bytes = peer(send.to).ahead_bytes;
  const std::size_t cost = window_cost(send.size_bytes);
  if (send.size_bytes <= kEagerBytes && ahead_bytes + cost <= kWindowBytes) {
    ahead_bytes += cost;
    out.push_eager(send);
  } else {
    send.number = next_number_++;
    asked_[send.number] = &send;
    out.push_ask(send);
    for (std::size_t lane = 1; lane < lanes_for(send); ++lane) connections_.call(send.to, lane);
  }
  connections_.flush(send.to);
}

void Messages::start(Receive& receive) {
  connections_.check_alive();
  if (receive.from) connections_.call(*receive.from);
  const std::shared_ptr<Arrival> arrival = matcher_.post(&receive);
  if (!arrival) return;
  const bool fits = receive.accept(arrival->from, arrival->size_bytes);
  if (arrival->number) {
    if (fits) grant(receive, arrival->from, *arrival->number);
    return;
  }
  peer(arrival->from).held_bytes -= window_cost(arrival->size_bytes);
  credit(arrival->from, arrival->size_bytes);
  if (!fits) return;
  if (arrival->got_bytes < arrival->size_bytes) {
    arrival->receive = &receive;
    return;
  }
  finish(receive, *arrival);
}

void Messages::check(const Send& send) const {
  connections_.check_alive();
  // One that waits for a grant needs both directions.
  if (connections_.is_gone(send.to) || (send.is_asked && connections_.is_over(send.to)))
    throw connections_.loss_of(send.to);
}

void Messages::check(const Receive& receive) const {
  receive.check_fit();
  connections_.check_alive();
  if (connections_.is_over(receive.peer())) throw connections_.loss_of(receive.peer());
}

// A message that is on its way cannot be taken back without the connection.
void Messages::give_up(Send& send) {
  if (send.is_asked) {
    const auto found = asked_.find(send.number);
    if (found != asked_.end()) found->second = nullptr;
  }
  if (!connections_.out(send.to).take_back(send))
    connections_.end_out(send.to, "a message was given up halfway");
}

void Messages::give_up(Receive& receive) {
  if (!receive.sender) return matcher_.withdraw(&receive);
  connections_.for_each_payload([&receive](Payload& payload) {
    if (payload.receive == &receive) payload.receive = nullptr, payload.to = nullptr;
    if (payload.arrival && payload.arrival->receive == &receive) payload.arrival->receive = nullptr;
  });
  for (auto& [number, granted] : peer(*receive.sender).granted)
    if (granted.receive == &receive) granted.receive = nullptr;
}

bool Messages::take_frame(int from, const Frame& frame, Payload& payload) {
  switch (frame.kind) {
    case Frame::Kind::Eager:
      return take_eager(from, frame, payload);
    case Frame::Kind::Ask:
      return take_ask(from, frame);
    case Frame::Kind::Grant:
      return take_grant(from, frame);
    case Frame::Kind::Data:
      return take_data(from, frame, payload);
    case Frame::Kind::Credit:
      break;
  }
  std::size_t& ahead_bytes = peer(from).ahead_bytes;
  if (frame.size_bytes > ahead_bytes) return false;
  ahead_bytes -= frame.size_bytes;
  return true;
}

bool Messages::take_eager(int from, const Frame& frame, Payload& payload) {
  payload.left_bytes = frame.size_bytes;
  if (Receive* const receive = matcher_.meet(from, frame.slot)) {
    credit(from, frame.size_bytes);
    if (!receive->accept(from, frame.size_bytes)) return true;
    payload.receive = receive;
    payload.to = receive->data;
    return true;
  }
  payload.arrival = std::make_shared<Arrival>();
  payload.arrival->from = from;
  payload.arrival->slot = frame.slot;
  payload.arrival->size_bytes = frame.size_bytes;
  if (frame.size_bytes > 0) payload.arrival->data = spares_.take(frame.size_bytes);
  payload.to = payload.arrival->data.get();
  std::size_t& held_bytes = peer(from).held_bytes;
  held_bytes += window_cost(frame.size_bytes);
  return held_bytes <= kWindowBytes && matcher_.keep(payload.arrival);
}

bool Messages::take_ask(int from, const Frame& frame) {
  if (Receive* const receive = matcher_.meet(from, frame.slot)) {
    if (receive->accept(from, frame.size_bytes)) grant(*receive, from, frame.number);
    return true;
  }
  const auto arrival = std::make_shared<Arrival>();
  arrival->from = from;
  arrival->slot = frame.slot;
  arrival->size_bytes = frame.size_bytes;
  arrival->number = frame.number;
  return matcher_.keep(arrival);
}

bool Messages::take_grant(int from, const Frame& frame) {
  const auto found = asked_.find(frame.number);
  if (found == asked_.end()) return false;
  Send* const send = found->second;
  if (send != nullptr && send->to != from) return false;
  asked_.erase(found);
  if (send == nullptr) return true;  // canceled: its group informs the receiver
  for (std::size_t lane = 0; lane < lanes_for(*send); ++lane) {
    // A part is in one lane at a time.
    if (!connections_.is_usable(from, lane) || (lane > 0 && send->queued_bytes == send->size_bytes))
      continue;
    connections_.out(from, lane).push_part(*send);
    connections_.flush(from, lane);
  }
  return true;
}

bool Messages::take_data(int from, const Frame& frame, Payload& payload) {
  auto& granted = peer(from).granted;
  const auto found = granted.find(frame.number);
  if (found == granted.end() || frame.size_bytes > found->second.left_bytes ||
      frame.slot > found->second.size_bytes - frame.size_bytes)
    return false;
  found->second.left_bytes -= frame.size_bytes;
  payload.left_bytes = frame.size_bytes;
  payload.receive = found->second.receive;
  if (payload.receive != nullptr) payload.to = payload.receive->data + frame.slot;
  if (found->second.left_bytes == 0) granted.erase(found);
  return true;
}

void Messages::end_payload(Payload& payload) {
  if (payload.receive != nullptr && payload.receive->got_bytes == payload.receive->size_bytes)
    payload.receive->is_done = true;
  if (payload.arrival && payload.arrival->receive != nullptr) {
    finish(*payload.arrival->receive, *payload.arrival);
  }
  payload = {};
}

void Messages::finish(Receive& receive, Arrival& arrival) {
  if (arrival.size_bytes > 0) std::memcpy(receive.data, arrival.data.get(), arrival.size_bytes);
  spares_.give_back(std::move(arrival.data), arrival.size_bytes);
  receive.got_bytes = arrival.size_bytes;
  receive.is_done = true;
}

void Messages::grant(Receive& receive, int from, std::uint64_t number) {
  peer(from).granted[number] = {&receive, receive.size_bytes, receive.size_bytes};
  connections_.push_first(from, Frame{.kind = Frame::Kind::Grant, .number = number});
}

void Messages::credit(int from, std::size_t size_bytes) {
  std::size_t& uncredited_bytes = peer(from).uncredited_bytes;
  uncredited_bytes += window_cost(size_bytes);
  if (uncredited_bytes < kCreditBytes) return;
  const Frame frame{.kind = Frame::Kind::Credit, .size_bytes = uncredited_bytes};
  uncredited_bytes = 0;
  connections_.push_first(from, frame);
}

std::size_t Messages::lanes_for(const Send& send) const {
  return send.size_bytes < kLeastLaneBytes ? 1 : connections_.lanes_to(send.to);
}

}  // namespace drun::worker::tcp

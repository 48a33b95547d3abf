#include "agent/output/gather/gather_link.h"

#include <utility>

namespace drun::agent {

void GatherLink::push(const rendezvous::Lines& like, std::string_view text) {
  if (!send_) return;
  sender_.push(like, text);
  send_all();
}

void GatherLink::send_all() {
  while (const rendezvous::Lines* lines = sender_.next()) send_(*lines);
}

void GatherLink::give_up() {
  has_given_up_ = true;
  send_ = nullptr;
  sender_.close();
  listener_.on_room();
  listener_.on_idle();
}

void GatherLink::on_lines_wanted(std::size_t window_bytes, Send send) {
  if (has_given_up_) return;
  ++trip_;
  send_ = std::move(send);
  sender_.open(window_bytes);
}

void GatherLink::on_lines_taken(std::size_t bytes) {
  const bool was_congested = sender_.is_congested();
  const bool was_idle = sender_.is_idle();
  sender_.granted(bytes);
  if (send_) send_all();
  if (was_congested && !sender_.is_congested()) listener_.on_room();
  if (!was_idle && sender_.is_idle()) listener_.on_idle();
}

void GatherLink::on_lines_lost() {
  if (!send_) return;
  send_ = nullptr;
  listener_.on_lost(sender_.close());
  listener_.on_room();
  listener_.on_idle();
}

}  // namespace drun::agent

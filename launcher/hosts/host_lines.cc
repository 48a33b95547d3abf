#include "launcher/hosts/host_lines.h"

#include <algorithm>
#include <utility>

#include "rendezvous/lines/line_window.h"

namespace drun::hosts {

HostLines::HostLines(asio::io_context& io, const Log& log, const OutputSpec& spec,
                     Consoles consoles, Listener listener)
    : log_(log),
      spec_(spec),
      listener_(std::move(listener)),
      writer_(
          io, log_,
          {.on_room = [this] { gathered_->wake(); }, .on_idle = [this] { listener_.on_empty(); }}),
      gathered_(std::make_unique<agent::GatheredLines>(
          io, log_, spec_,
          agent::GatheredLines::Places{consoles.out, consoles.err, files_, writer_},
          agent::GatheredLines::Listener{
              .on_taken = [this](rendezvous::Peer, std::size_t cost) { on_taken(cost); },
              .on_empty = [this] { listener_.on_empty(); }})) {}

Result<void> HostLines::prepare(std::string_view run_id) {
  return files_->make(spec_.log_dir, run_id, true);
}

void HostLines::take(std::size_t host, const std::string& name, std::string_view payload) {
  Result<agent::FramedLines> framed = agent::decode_lines(payload);
  if (!framed) {
    if (!std::exchange(has_complained_, true))
      log_.warning("lines of " + name + " are left out: " + framed.error().message);
    return;
  }
  framed->from.peer = host;
  framed->from.host = name;
  waiting_bytes_ += rendezvous::cost_bytes(framed->lines);
  gathered_->on_lines(framed->from, std::move(framed->lines));
}

void HostLines::take_end(std::size_t host) { gathered_->on_lines_end(host); }

void HostLines::on_taken(std::size_t cost) {
  const bool was_congested = is_congested();
  waiting_bytes_ -= std::min(cost, waiting_bytes_);
  if (was_congested && !is_congested()) listener_.on_room();
}

void HostLines::finish(bool has_run) {
  const bool is_wanted = !files_->is_temporary() && has_run;
  if (!gathered_->has_files() && !is_wanted) files_->remove();
}

}  // namespace drun::hosts

#include "agent/output/worker_stream.h"

#include <utility>

namespace drun::agent {
namespace {

WallTime wall_now() {
  return std::chrono::time_point_cast<WallTime::duration>(std::chrono::system_clock::now());
}

}  // namespace

WorkerStream::WorkerStream(asio::io_context& io, std::span<char> buffer, Console& console,
                           FileWriter& writer, Setup setup, std::function<void()> on_end)
    : console_(console),
      writer_(writer),
      setup_(std::move(setup)),
      lines_(setup_.number, setup_.form),
      sent_lines_(setup_.number, ""),
      on_end_(std::move(on_end)),
      reader_(std::make_shared<PipeReader>(
          io, buffer,
          PipeReader::Listener{.is_ready = [this] { return !is_held_up(); },
                               .on_bytes = [this](std::string_view bytes) { take(bytes); },
                               .on_end = [this] { end(); }})) {}

WorkerStream::~WorkerStream() {
  on_end_ = nullptr;
  reader_->close();
}

void WorkerStream::take(std::string_view bytes) {
  taken_bytes_ += bytes.size();
  if (setup_.keeps_tail) tail_.take(bytes);
  if (setup_.tee) writer_.append(setup_.tee, bytes);
  if (setup_.filter) {
    std::string picked;
    setup_.filter->take(bytes, picked);
    writer_.append(setup_.filtered, picked);
  }
  if (!goes_by_link()) return show(bytes, wall_now());
  sent_lines_.take(bytes, to_send_);
  send(false);
}

void WorkerStream::show(std::string_view bytes, WallTime read_at) {
  if (console_.is_gone() || bytes.empty()) return;
  lines_.take(bytes, read_at, console_.queue());
  console_.flush();
}

void WorkerStream::show_end(WallTime read_at) {
  if (console_.is_gone()) return;
  lines_.end_of_stream(read_at, console_.queue());
  console_.flush();
}

void WorkerStream::send(bool is_end) {
  if (to_send_.size_bytes() == 0 && !is_end) return;
  setup_.lines.time = wall_now();
  setup_.lines.is_end = is_end;
  setup_.link->push(setup_.lines, to_send_.bytes());
  to_send_.consume(to_send_.size_bytes());
}

void WorkerStream::take_back(const rendezvous::Lines& lines) {
  show(lines.text, lines.time);
  if (lines.is_end) show_end(lines.time);
}

void WorkerStream::leave_link() {
  if (setup_.link == nullptr) return;
  setup_.link = nullptr;
  sent_lines_.end_of_stream(to_send_);
  show(to_send_.bytes(), wall_now());
  to_send_.clear();
}

void WorkerStream::end() {
  if (setup_.filter) {
    std::string picked;
    setup_.filter->end_of_stream(picked);
    writer_.append(setup_.filtered, picked);
  }
  if (goes_by_link()) {
    sent_lines_.end_of_stream(to_send_);
    send(true);
  } else {
    show_end(wall_now());
  }
  if (on_end_) on_end_();
}

}  // namespace drun::agent

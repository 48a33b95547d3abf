#include "launcher/remote/host_output.h"

#include <algorithm>
#include <utility>

#include "agent/workers/worker_stdin.h"
#include "rendezvous/protocol/line_window.h"

namespace drun::hosts {

HostReceiver::HostReceiver(HostConsoles consoles, std::string name, std::uint64_t stream,
                           Listener listener)
    : consoles_(consoles),
      listener_(std::move(listener)),
      out_lines_(stream, ""),
      err_lines_(stream + 1, ""),
      stray_{Stray{.lines = agent::LineBuffer(stream + 2, name + ": "), .words = {}},
             Stray{.lines = agent::LineBuffer(stream + 3, name + ": "), .words = {}}} {}

void HostReceiver::put(agent::LineBuffer& lines, std::string_view bytes, agent::Console& console) {
  if (console.is_gone()) return;
  lines.take(bytes, console.queue());
  console.flush();
}

void HostReceiver::take(const agent::Frame& frame) {
  switch (frame.type) {
    case agent::FrameType::Out:
      return put(out_lines_, frame.payload, consoles_.out);
    case agent::FrameType::Err:
      return put(err_lines_, frame.payload, consoles_.err);
    case agent::FrameType::Lines:
      if (listener_.on_lines) listener_.on_lines(frame.payload);
      return;
    case agent::FrameType::Control:
      return take_control(frame.payload);
  }
}

void HostReceiver::take_control(std::string_view text) {
  if (!std::exchange(has_answered_, true)) show_words();
  if (const auto room = agent::parse_room(text)) {
    if (has_hello_ && listener_.on_room) listener_.on_room(*room);
    return;
  }
  Result<Message> message = parse(text);
  if (!message)
    message = Message(Hello{.problem = message.error().message, .exit_code = kRendezvousRefused});
  if (has_hello_) {
    if (const auto* const end = std::get_if<End>(&*message)) listener_.on_end(*end);
  } else if (const auto* const hello = std::get_if<Hello>(&*message)) {
    has_hello_ = true;
    listener_.on_hello(*hello);
  } else if (auto* const report = std::get_if<HostReport>(&*message)) {
    listener_.on_report(std::move(*report));
  } else if (auto* const answers = std::get_if<LookupAnswers>(&*message)) {
    listener_.on_answers(std::move(*answers));
  }
}

void HostReceiver::take_stray(bool is_stderr, std::string_view text) {
  Stray& stray = stray_[is_stderr ? 1 : 0];
  if (has_answered_) return put(stray.lines, text, consoles_.err);
  stray.words.append(text);
  if (stray.words.size() <= kMostWordsBytes) return;
  const std::size_t beyond = stray.words.size() - kMostWordsBytes;
  const std::size_t line_end = stray.words.find('\n', beyond - 1);
  show_words(stray, line_end == stray.words.npos ? beyond : line_end + 1);
}

void HostReceiver::show_words(Stray& stray, std::size_t bytes) {
  put(stray.lines, std::string_view(stray.words).substr(0, bytes), consoles_.err);
  stray.words.erase(0, bytes);
}

// Completes the last line: text before the first message must not wait for the rest of its line.
void HostReceiver::show_words() {
  for (Stray& stray : stray_) {
    if (stray.words.empty()) continue;
    if (!stray.words.ends_with('\n')) stray.words += '\n';
    show_words(stray, stray.words.size());
  }
}

std::string HostReceiver::end() {
  std::string words;
  if (!has_answered_) {
    // The reason is in the output of ssh or the shell; show the login's greeting.
    words = std::exchange(stray_[stray_[1].words.empty() ? 0 : 1].words, {});
    show_words();
  }
  const auto end_of = [](agent::LineBuffer& lines, agent::Console& console) {
    if (console.is_gone()) return;
    lines.end_of_stream(console.queue());
    console.flush();
  };
  end_of(out_lines_, consoles_.out);
  end_of(err_lines_, consoles_.err);
  for (Stray& stray : stray_) end_of(stray.lines, consoles_.err);
  return words;
}

HostLines::HostLines(asio::io_context& io, const Log& log, const OutputSpec& spec,
                     HostConsoles consoles, Listener listener)
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
  Result<void> made = files_->make(spec_.log_dir, run_id, true);
  writer_.set_place("the log directory", files_->place());
  return made;
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

#include "launcher/hosts/host_receiver.h"

#include <algorithm>
#include <utility>

#include "agent/worker_stdin.h"

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
    case agent::FrameType::StrayOut:
    case agent::FrameType::StrayErr:
      return take_stray(frame.type == agent::FrameType::StrayErr, frame.payload);
    case agent::FrameType::Relayed:
    case agent::FrameType::Ended:
      return;
  }
}

void HostReceiver::take_control(std::string_view text) {
  if (has_hello_) {
    const auto room = agent::parse_room(text);
    if (room && listener_.on_room) return listener_.on_room(*room);
    if (const Result<End> end = parse_end(text)) listener_.on_end(*end);
    return;
  }
  const Result<Hello> hello = parse_hello(text);
  if (!hello) return;
  has_hello_ = true;
  show_words();
  listener_.on_hello(*hello);
}

void HostReceiver::take_stray(bool is_stderr, std::string_view text) {
  Stray& stray = stray_[is_stderr ? 1 : 0];
  if (has_hello_) return put(stray.lines, text, consoles_.err);
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

// What is shown before Hello is not to wait for its line's end.
void HostReceiver::show_words() {
  for (Stray& stray : stray_) {
    if (stray.words.empty()) continue;
    if (!stray.words.ends_with('\n')) stray.words += '\n';
    show_words(stray, stray.words.size());
  }
}

std::string HostReceiver::end() {
  std::string words;
  if (!has_hello_) {
    // The reason is ssh's or the shell's; what the login greeted with is shown.
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

}  // namespace drun::hosts

// What stands on the other end of an ssh may say anything: lines behind marks, frames, and text.
#include <cstdlib>
#include <string>
#include <string_view>

#include "launcher/hosts/hand_over.h"
#include "launcher/hosts/marked_lines.h"
#include "launcher/hosts/relay_wire.h"

namespace {

using namespace drun;

template <typename Value>
void check_again(const Result<Value>& again, const Value& value) {
  if (!again || !(*again == value)) std::abort();
}

// As they are parsed: without the mark, if there is one, and without the newline.
template <typename Value>
std::string line_of(const Value& value) {
  const std::string line = hosts::to_line(value);
  const std::size_t mark = line.starts_with(hosts::kMark) ? hosts::kMark.size() : 0;
  return line.substr(mark, line.size() - mark - 1);
}

void check_values(std::string_view line) {
  if (const auto start = hosts::parse_start(line))
    check_again(hosts::parse_start(line_of(*start)), *start);
  if (const auto hello = hosts::parse_hello(line))
    check_again(hosts::parse_hello(line_of(*hello)), *hello);
  if (const auto end = hosts::parse_end(line)) check_again(hosts::parse_end(line_of(*end)), *end);
  if (const auto start = hosts::parse_relay_start(line))
    check_again(hosts::parse_relay_start(hosts::to_text(*start)), *start);
  if (const auto ended = hosts::parse_relay_ended(line))
    check_again(hosts::parse_relay_ended(hosts::to_text(*ended)), *ended);
  static_cast<void>(hosts::parse_relayed(line));
  static_cast<void>(hosts::parse_relay_line(line));
  static_cast<void>(hosts::parse_relay_command(line));
}

// What arrives does not depend on how it was cut.
std::string taken(std::string_view bytes, std::size_t cut) {
  hosts::MarkedLines lines;
  std::string seen;
  const hosts::MarkedLines::Listener listener{
      .on_text = [&seen](std::string_view text) { seen.append(text); },
      .on_line = [&seen](std::string_view line) { seen.append("<").append(line).append(">"); },
      .on_frame = [&seen](
                      const agent::FrameHead&,
                      std::string_view payload) { seen.append("[").append(payload).append("]"); }};
  lines.take(bytes.substr(0, cut), listener);
  lines.take(bytes.substr(cut), listener);
  lines.end_of_stream(listener);
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_values(text);
  if (size == 0) return 0;
  const std::size_t cut = data[0] % size;
  if (taken(text, 0) != taken(text, cut)) std::abort();
  return 0;
}

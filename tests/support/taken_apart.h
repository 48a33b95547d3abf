// What marked lines and frames come to that arrive in pieces.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/hosts/marked_lines.h"
#include "tests/support/catch.h"

namespace drun::test {

struct Parts {
  std::string text;  // with marked lines in angle brackets
  std::vector<agent::FramedLines> frames;
};

inline Parts taken_apart(const std::string& bytes, std::size_t piece, bool takes_frames = true) {
  Parts parts;
  hosts::MarkedLines::Listener listener{
      .on_text = [&parts](std::string_view text) { parts.text += text; },
      .on_line = [&parts](std::string_view line) { parts.text += "<" + std::string(line) + ">"; }};
  if (takes_frames) {
    listener.on_frame = [&parts](const agent::FrameHead& head, std::string_view payload) {
      auto framed = agent::parse_frame(head, payload);
      REQUIRE(framed);
      parts.frames.push_back(*std::move(framed));
    };
  }
  hosts::MarkedLines lines;
  for (std::size_t at = 0; at < bytes.size(); at += piece)
    lines.take(std::string_view(bytes).substr(at, piece), listener);
  lines.end_of_stream(listener);
  return parts;
}

}  // namespace drun::test

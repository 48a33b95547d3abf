// core. One agent's standard output taken apart: what its workers wrote, and the lines of its own
// behind kMark (hand_over.h).
//
// Shape:   a mark may stand anywhere, as a worker's last line may lack its end; a marked line ends
//          with '\n' or with the stream and is not part of the text. A marked line over
//          kMostLineBytes is text. A frame of lines (agent/output/gather/line_frames.h) is known by
//          its mark; it is text to a listener that takes none.
// Units:   holds back at most one marked line, or one frame.
// Owner:   a value.   Thread: any, one at a time.   Errors: none.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "agent/output/gather/line_frames.h"

namespace drun::hosts {

class MarkedLines {
 public:
  struct Listener {
    std::function<void(std::string_view)> on_text;  // bytes, in any pieces
    std::function<void(std::string_view)> on_line;  // a marked line, without mark and newline
    std::function<void(const agent::FrameHead&, std::string_view payload)> on_frame{};
  };

  void take(std::string_view bytes, const Listener& listener);
  void end_of_stream(const Listener& listener);

 private:
  // Of a frame at the beginning of `bytes` that has its head; absent: none, it is no frame.
  static std::optional<std::size_t> take_frame(std::string_view bytes, const Listener& listener);

  std::string held_;  // begins with a mark, or with a part of one
};

}  // namespace drun::hosts

// core. One agent's standard output taken apart: what its workers wrote, and the lines of its own
// behind kMark (hand_over.h).
//
// Shape:   a mark may stand anywhere, as a worker's last line may lack its end; a marked line ends
//          with '\n' or with the stream and is not part of the text. A marked line over
//          kMostLineBytes is text.
// Units:   holds back at most one marked line.
// Owner:   a value.   Thread: any, one at a time.   Errors: none.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace drun::hosts {

class MarkedLines {
 public:
  struct Listener {
    std::function<void(std::string_view)> on_text;  // bytes, in any pieces
    std::function<void(std::string_view)> on_line;  // a marked line, without mark and newline
  };

  void take(std::string_view bytes, const Listener& listener);
  void end_of_stream(const Listener& listener);

 private:
  std::string held_;  // begins with a mark, or with a part of one
};

}  // namespace drun::hosts

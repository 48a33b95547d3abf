// edge. One line on a terminal that is rewritten in place while drun waits for something, and
// leaves nothing behind.
//
// Shows:   from kPatience on, every second; cut to the terminal's width. Nothing at all where the
//          descriptor is no terminal.
// Draws:   through `draw`, which never waits and may leave bytes out (output/console.h).
// Others:  what else is written there must be announced by clear(); around() does that for a log.
// Owner:   the agent, the starter; keep it as long as logs from around(). stop() erases the line
// and
//          lets the io_context end.
// Thread:  the io_context's only.   Errors: none.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/log.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

class Progress {
 public:
  static constexpr std::chrono::milliseconds kPatience{1000};
  // What to show now; absent: nothing.
  using Text = std::function<std::optional<std::string>()>;

  using Draw = std::function<void(std::string_view bytes)>;

  // `fd`: the terminal, to ask for its width.
  Progress(asio::io_context& io, int fd, Draw draw);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void start(Text text);
  // Whether there is a terminal for it.
  bool is_shown() const { return text_ != nullptr; }
  void clear();
  void stop();

  // Writes to `log` with the line out of the way.
  Log around(const Log& log);

 private:
  void wait(std::chrono::milliseconds time);
  void show(const std::string& text);

  asio::steady_timer timer_;
  const int fd_;
  Draw draw_;
  Text text_;
  bool is_drawn_ = false;
};

}  // namespace drun::agent

// edge. Shows one line on a terminal while drun waits for something. The line is rewritten in place
// and erased at the end.
//
// Shows:   after kPatience, updated every second, cut to the terminal's width. Nothing if the
//          descriptor is not a terminal.
// Draws:   through `draw`, which never waits and can drop bytes (output/console.h).
// Others:  call clear() before anything else is written to the terminal; around() does this for a
//          log.
// Owner:   the agent, the launcher. Must outlive the logs returned by around(). stop() erases the
//          line and no longer keeps the io_context running.
// Thread:  the io_context's only.
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
  // The text to show now; absent: none.
  using Text = std::function<std::optional<std::string>()>;

  using Draw = std::function<void(std::string_view bytes)>;

  // `fd`: the terminal, for its width.
  Progress(asio::io_context& io, int fd, Draw draw);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void start(Text text);
  // Whether the descriptor is a terminal.
  bool is_shown() const { return text_ != nullptr; }
  void clear();
  void stop();

  // Returns a log that erases the line and then writes to `log`.
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

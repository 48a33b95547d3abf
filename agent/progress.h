// edge. One line on a terminal that is rewritten in place while something is waited for, and leaves
// nothing behind.
//
// Shows:   from kPatience on, every second; cut to the terminal's width. Nothing at all where the
//          descriptor is no terminal, or one that takes nothing at the moment.
// Others:  what else is written there must be announced by clear(); around() does that for a log.
// Owner:   the agent, the starter; keep it as long as logs from around(). stop() lets the
//          io_context end.
// Thread:  the io_context's only.   Errors: none.
#pragma once

#include <unistd.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "rendezvous/asio.h"
#include "rendezvous/log.h"

namespace drun::agent {

class Progress {
 public:
  static constexpr std::chrono::milliseconds kPatience{1000};
  // What to show now; absent: nothing.
  using Text = std::function<std::optional<std::string>()>;

  explicit Progress(asio::io_context& io, int fd = STDERR_FILENO);
  ~Progress() { clear(); }
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
  void draw(const std::string& text);
  void write(std::string_view bytes) const;

  asio::steady_timer timer_;
  const int fd_;
  Text text_;
  bool is_drawn_ = false;
};

}  // namespace drun::agent

// edge. One console: a descriptor that drun was given (1 or 2) and shares with others, written to
// without ever waiting.
//
// Why:     O_NONBLOCK belongs to the open file description, which the shell and drun's parent share
//          with it: it must not be set there. So a pipe or a terminal is opened once more through
//          /proc/self/fd, a socket gets MSG_DONTWAIT, and what is left (a
//          terminal of another user) is asked with poll() before each small write. Regular files
//          have no readiness to ask for: a thread writes them (file_writer.h).
// Lines:   whatever else writes to the same pipe (agents of the same job, say), lines shorter than
//          PIPE_BUF stay whole: pipes get pieces of whole lines that the kernel takes as one.
// Flow:    put bytes into queue(), then flush(). While is_congested(), stop putting; on_room is
//          called when there is room again, on_empty when all has been written.
// Channel: of an agent that a starter on another host reads (agent/output/host_channel.h), stdout
// and
//          stderr are consoles whose bytes become frames in the queue of a third one, the channel.
// Seam:    every byte of a console leaves the process in write_some(), or for a regular file in
//          write_to_file(), and nowhere else.
// Owner:   Output; destroyed after io_context.run() has returned; stop() makes it return.
// Thread:  the io_context's only.   Errors: none; a console that fails is gone: logged once, its
//          queue dropped, and is_gone() from then on. Requires SIGPIPE to be ignored.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "agent/output/file_writer.h"
#include "agent/output/host_channel.h"
#include "agent/output/line_buffer.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

// True when both are the same terminal, pipe or file.
bool is_same_file(int one_fd, int other_fd);

class Console {
 public:
  struct Listener {
    std::function<void()> on_room;
    std::function<void()> on_empty;
  };

  // `name` is for the log: "stdout". Both callbacks come from the loop or from flush().
  Console(asio::io_context& io, Log log, int fd, std::string name, Listener listener);
  // Its bytes become frames of `type` on `channel`, whose callbacks stand for its own.
  Console(Console& channel, FrameType type);
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Of a channel: holds whole frames only.
  Console& as_channel() {
    is_channel_ = true;
    return *this;
  }

  LineQueue& queue() { return queue_; }
  void flush();

  bool is_congested() const { return channel_ ? channel_->is_congested() : is_congested_; }
  bool is_empty() const {
    return queue_.size_bytes() == 0 && !is_writing_ &&
           (channel_ == nullptr || channel_->is_empty());
  }
  bool is_gone() const { return channel_ ? channel_->is_gone() : is_gone_; }
  bool is_terminal() const { return kind_ == Kind::Terminal; }

  // Drops what is queued and waits for nothing any more.
  void stop();

  // Of a channel, after stop(): the rest of a frame that was written in part. It has to precede
  // whatever else is written to the descriptor.
  const std::string& unfinished_frame() const { return unfinished_frame_; }

 private:
  enum class Kind { Device, File, Pipe, Terminal, Socket };  // Device: /dev/null

  void open();
  ssize_t write_some(std::string_view bytes) const;
  bool is_writable() const;
  void write_what_it_takes();
  void write_to_file();
  void note_room();
  void wait_for_room();
  void lose(int error_number);
  void flush_to_channel();
  void count_written(std::size_t bytes);

  Log log_;
  std::string name_;
  Listener listener_;
  LineQueue queue_;
  asio::io_context& io_;
  int fd_;           // drun's own descriptor, or own_fd_
  UniqueFd own_fd_;  // the same file on a separate open file description, non-blocking
  Kind kind_ = Kind::Device;
  std::unique_ptr<FileWriter> file_writer_;  // of a regular file, as is file_fd_
  std::shared_ptr<UniqueFd> file_fd_;        // also held by a write under way
  // A separate epoll around fd_: registering fd_ itself with Asio would set O_NONBLOCK on it.
  asio::posix::stream_descriptor readiness_;
  bool is_waiting_ = false;
  bool is_writing_ = false;  // file_writer_ is
  bool is_congested_ = false;
  bool is_gone_ = false;
  Console* channel_ = nullptr;
  FrameType type_ = FrameType::Out;
  bool is_channel_ = false;
  std::size_t frame_left_bytes_ = 0;  // of the frame that was written in part
  std::string unfinished_frame_;
};

// What waits of drun's own lines once the console is congested: beyond the workers' share, so that
// a log is not lost where workers fill the console.
inline constexpr std::size_t kOwnLinesBytes = std::size_t{64} << 10;

// drun's own log on a console: whole lines, in turn with those of the workers.
class OwnLines {
 public:
  // `log` leads back here: it reports how many lines were dropped once there is room again.
  // `stream`: see LineBuffer.
  OwnLines(Console& console, Log log, std::uint64_t stream);

  // Adds a newline, and one before it where the console's last line has none. Drops the line where
  // kOwnLinesBytes wait.
  void say(std::string_view line);
  // The console has room again.
  void note_room();
  // Bytes that are erased later. Left out while anything waits, or a worker's line is unfinished.
  void draw(std::string_view bytes);

 private:
  Console& console_;
  Log log_;
  LineBuffer lines_;
  std::size_t waiting_bytes_ = 0;  // while the console is congested
  std::size_t dropped_ = 0;
};

}  // namespace drun::agent

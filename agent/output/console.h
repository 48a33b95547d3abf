// edge. Writes to a console (descriptor 1 or 2, which drun shares with other processes) without
// ever blocking.
//
// Why:     O_NONBLOCK belongs to the open file description, which drun shares with the shell and
//          its parent, so it must not be set there. A pipe or terminal is therefore opened again
//          through /proc/self/fd; a socket is written with MSG_DONTWAIT; any other device (a
//          terminal of another user) is polled before each small write. Regular files are always
//          "ready", so a thread writes them (file_writer.h).
// Lines:   lines shorter than PIPE_BUF stay whole even if other processes (such as agents of the
//          same job) write to the same pipe: a write to a pipe consists of whole lines and is small
//          enough to be atomic.
// Flow:    put bytes into queue(), then call flush(). While is_congested(), do not add more;
//          on_room is called when there is room again, on_empty when everything has been written.
// Channel: in an agent of a launcher on another host (agent/output/host_channel.h), stdout and
//          stderr are consoles whose bytes become frames in the queue of a third console, the
//          channel.
// Writes:  all bytes leave the process in write_some(), or for a regular file in write_to_file().
// Errors:  a console that fails is logged once, its queue is dropped, and is_gone() is true from
//          then on. SIGPIPE must be ignored.
// Owner:   Output; destroy it after io_context.run() has returned. stop() makes it return.
// Thread:  the io_context's only.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "agent/output/console_lines.h"
#include "agent/output/file_writer.h"
#include "agent/output/host_channel.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

// True if both descriptors refer to the same terminal, pipe or file.
bool is_same_file(int one_fd, int other_fd);

class Console {
 public:
  struct Listener {
    std::function<void()> on_room;
    std::function<void()> on_empty;
  };

  // `name` is for the log, such as "stdout". The callbacks are called from the loop or from
  // flush().
  Console(asio::io_context& io, Log log, int fd, std::string name, Listener listener);
  // A console whose bytes become frames of `type` on `channel`. The channel's callbacks are used.
  Console(Console& channel, FrameType type);
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Makes this console a channel: its queue holds whole frames only.
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
  // A write has failed, and not because the reader has closed the pipe.
  bool has_failed() const { return has_failed_; }
  bool is_terminal() const { return kind_ == Kind::Terminal; }

  // Drops the queue and ends all waits.
  void stop();

  // Of a channel, after stop(): the rest of a partly written frame. It must be written to the
  // descriptor before anything else.
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
  std::unique_ptr<FileWriter> file_writer_;  // for a regular file, as is file_fd_
  std::shared_ptr<UniqueFd> file_fd_;        // also held by a running write
  // A separate epoll around fd_: registering fd_ itself with Asio would set O_NONBLOCK on it.
  asio::posix::stream_descriptor readiness_;
  bool is_waiting_ = false;
  bool is_writing_ = false;  // a write of file_writer_ is running
  bool is_congested_ = false;
  bool is_gone_ = false;
  bool has_failed_ = false;
  Console* channel_ = nullptr;
  FrameType type_ = FrameType::Out;
  bool is_channel_ = false;
  std::size_t frame_left_bytes_ = 0;  // rest of the partly written frame
  std::string unfinished_frame_;
};

// How many bytes of drun's own lines can wait while the console is congested. Separate from the
// workers' share, so that workers that fill the console do not cause drun's log to be lost.
inline constexpr std::size_t kOwnLinesBytes = std::size_t{64} << 10;

// drun's own log on a console: whole lines, between those of the workers.
class OwnLines {
 public:
  // `log` writes to this object and reports the number of dropped lines when there is room again.
  // `stream`: see LineBuffer.
  OwnLines(Console& console, Log log, std::uint64_t stream);

  // Writes `line` and a newline, and ends an unfinished line first. Drops the line if
  // kOwnLinesBytes are waiting.
  void say(std::string_view line);
  // The console has room again.
  void note_room();
  // Writes text that is erased later. Dropped while other output waits or a worker's line is
  // unfinished.
  void draw(std::string_view bytes);

 private:
  Console& console_;
  Log log_;
  LineBuffer lines_;
  std::size_t waiting_bytes_ = 0;  // while the console is congested
  std::size_t dropped_ = 0;
};

}  // namespace drun::agent

// edge. Forwards one stream of one worker from its pipe to the console and, if teed, to its log
// file; or to the coordinator while its trip (log_gathering.h) lasts.
//
// Flow:    reads only while neither the console (or the link) nor the log file's writer is
//          congested, so a slow one slows the worker. Files get the original bytes, even if the
//          console has failed.
// Owner:   Output. The console, the link and the writer must outlive it or the stream's end.
// Thread:  the io_context's only.   Errors: none; the writer handles those of files.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "agent/output/console.h"
#include "agent/output/console_lines.h"
#include "agent/output/file_writer.h"
#include "agent/output/log_gathering.h"
#include "agent/output/stderr_record.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/net/deadline_timer.h"

namespace drun::agent {

// --- The read end of a worker's pipe

struct Pipe {
  UniqueFd read_end;   // blocking, until it is passed to a PipeReader
  UniqueFd write_end;  // blocking, as programs expect; a separate open file description
};

// The default capacity of a pipe (pipe(7)).
inline constexpr std::size_t kDefaultPipeBytes = std::size_t{64} << 10;

// Requests `capacity_bytes`; the kernel may grant less (see pipe(7), pipe-user-pages-soft).
Result<Pipe> make_pipe(std::size_t capacity_bytes);

// Reads whenever the pipe has bytes and the listener is ready. While the listener is not ready,
// bytes stay in the pipe and block the writer; wake() checks again. A pipe that cannot be read
// counts as ended. Held by a shared_ptr, because pending handlers keep it alive until close().
// `buffer` and the listener must live until close() or on_end.
class PipeReader : public std::enable_shared_from_this<PipeReader> {
 public:
  struct Listener {
    std::function<bool()> is_ready;
    std::function<void(std::string_view)> on_bytes;
    std::function<void()> on_end;  // exactly once: at the end of file or at close()
  };

  // `buffer` is shared by all readers; its content is valid only during on_bytes.
  PipeReader(asio::io_context& io, std::span<char> buffer, Listener listener);

  Result<void> start(UniqueFd read_end);
  void wake();
  bool is_closed() const { return is_closed_; }

  // Reads the current content of the pipe, even if the listener is not ready. Does not wait for
  // bytes written later.
  void take_now();

  // Stops reading.
  void close();

 private:
  enum class Got { Bytes, Nothing, End };

  Got read_once(std::size_t at_most_bytes);
  void wait();

  asio::posix::stream_descriptor pipe_;
  std::span<char> buffer_;
  Listener listener_;
  bool is_waiting_ = false;
  bool is_closed_ = true;
};

// --- The stream

// After this time without output, an unfinished line of a worker that reads from a terminal is
// taken for a prompt, and shown.
inline constexpr std::chrono::milliseconds kPromptDelay{100};

class WorkerStream {
 public:
  struct Setup {
    std::uint64_t number = 0;               // unique among all streams of all rounds, not 0
    LineFormat form;                        // on the console
    bool is_stderr = false;                 // keeps its tail, finds errors and PyTorch's watchdog
    bool shows_prompts = false;             // its worker reads from a terminal
    std::shared_ptr<FileWriter::File> tee;  // null: not teed
    std::optional<LineFilter> filter;       // needs `filtered`
    std::shared_ptr<FileWriter::File> filtered;
    GatherLink* link = nullptr;  // null: not to the coordinator
    std::uint64_t trip = 0;      // the link's trip of this stream
    rendezvous::Lines lines;     // the common fields of all messages
    std::function<void()> on_first_bytes{};
  };

  WorkerStream(asio::io_context& io, std::span<char> buffer, Console& console, FileWriter& writer,
               Setup setup, std::function<void()> on_end);
  WorkerStream(const WorkerStream&) = delete;
  WorkerStream& operator=(const WorkerStream&) = delete;
  ~WorkerStream();

  Result<void> start(UniqueFd read_end) { return reader_->start(std::move(read_end)); }
  // The console or the file queue has room again.
  void wake() { reader_->wake(); }
  void take_now() { reader_->take_now(); }
  void close() { reader_->close(); }
  bool is_closed() const { return reader_->is_closed(); }

  // The coordinator has not passed on `lines`; shows them here.
  void take_back(const rendezvous::Lines& lines);
  // Sends the rest of the stream to the console.
  void leave_link();

  // True while congestion keeps the pipe from being read.
  bool is_held_up() const {
    if (setup_.tee && writer_.is_congested()) return true;
    return goes_by_link() ? setup_.link->is_congested() : console_.is_congested();
  }
  // Without lines of PyTorch's watchdog.
  std::uint64_t printed_bytes() const { return printed_bytes_; }
  std::string_view tail() const { return tail_.bytes(); }
  const LastError& last_error() const { return last_error_; }
  const WatchdogLines& watchdog_lines() const { return watchdog_lines_; }

 private:
  bool goes_by_link() const { return setup_.link != nullptr && setup_.link->trip() == setup_.trip; }
  void take(std::string_view bytes);
  void show(std::string_view bytes, WallTime read_at);
  void show_end(WallTime read_at);
  void await_rest_of_line();
  void send(bool is_end);
  void end();

  Console& console_;
  FileWriter& writer_;
  Setup setup_;
  FormattedLines lines_;
  LineBuffer sent_lines_;
  LineQueue to_send_;
  Tail tail_;
  LastError last_error_;
  WatchdogLines watchdog_lines_;
  bool has_taken_ = false;
  std::uint64_t printed_bytes_ = 0;
  rendezvous::DeadlineTimer prompt_timer_;
  std::function<void()> on_end_;
  std::shared_ptr<PipeReader> reader_;
};

}  // namespace drun::agent

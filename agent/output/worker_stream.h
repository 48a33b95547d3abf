// edge. One stream of one worker that passes through drun: from its pipe to the console, and to its
// log file when teed; or to the coordinator instead, as long as its trip (log_uplink.h) lasts.
//
// Flow:    reads only while neither the console (or the link) nor, when it is teed, the writer of
//          its file is congested: a slow one slows the worker. Files get the bytes as they are,
//          also when the console is gone.
// Owner:   Output. The console, the link and the writer must outlive it or its end.
// Thread:  the io_context's only.   Errors: none; those of files are the writer's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/output/console.h"
#include "agent/output/file_writer.h"
#include "agent/output/line_buffer.h"
#include "agent/output/line_format.h"
#include "agent/output/log_uplink.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/asio.h"

// edge. The reading end of one worker's pipe.
//
// Flow:    reads when there is something and the listener is ready for it; a listener that is not
//          ready leaves the bytes in the pipe, whose writer then waits. wake() asks again.
// Owner:   a shared_ptr, as waiting handlers keep it; close() ends it. `buffer` and the listener
//          must live until close() or on_end.
// Thread:  the io_context's only.
// Errors:  a pipe that cannot be read has ended.

namespace drun::agent {

struct Pipe {
  UniqueFd read_end;   // blocking, until a PipeReader has it
  UniqueFd write_end;  // blocking, as programs expect; another description than the read end's
};

// The default capacity of a pipe (pipe(7)).
inline constexpr std::size_t kDefaultPipeBytes = std::size_t{64} << 10;

// `capacity_bytes` is a wish: the system may grant less (see pipe(7), pipe-user-pages-soft).
Result<Pipe> make_pipe(std::size_t capacity_bytes);

class PipeReader : public std::enable_shared_from_this<PipeReader> {
 public:
  struct Listener {
    std::function<bool()> is_ready;
    std::function<void(std::string_view)> on_bytes;
    std::function<void()> on_end;  // once and only once: end of file, or close()
  };

  // `buffer` is shared by all readers: its content is the callback's only.
  PipeReader(asio::io_context& io, std::span<char> buffer, Listener listener);

  Result<void> start(UniqueFd read_end);
  void wake();
  bool is_closed() const { return is_closed_; }

  // Takes the present contents of the pipe, complete or not; does not follow a writer that keeps
  // writing.
  void take_now();

  // Not read any further.
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

}  // namespace drun::agent

// core. The last lines of a stream, in flat memory: what a report shows of a worker's stderr.
//
// Units:   kTailBytes of the stream are kept (twice that in memory at most), whatever its length.
// Lines:   without line ends; of a progress bar only its last state; empty lines at the very end
//          are left out. The oldest may lack its beginning, a line longer than the limit its end
//          (then it ends with "...").
// Owner:   values.   Thread: any, one at a time.   Errors: none.

namespace drun::agent {

inline constexpr std::size_t kTailBytes = std::size_t{32} << 10;
inline constexpr std::size_t kTailLines = 20;
inline constexpr std::size_t kTailLineBytes = std::size_t{4} << 10;

class Tail {
 public:
  void take(std::string_view bytes);
  // At most kTailBytes.
  std::string_view bytes() const;

 private:
  std::string bytes_;
};

// The last kTailLines of `bytes`, each of at most kTailLineBytes.
std::vector<std::string> last_lines(std::string_view bytes);

}  // namespace drun::agent

namespace drun::agent {

class WorkerStream {
 public:
  struct Setup {
    std::uint64_t number = 0;               // unique among all streams of all rounds, not 0
    LineFormat form;                        // on the console
    bool keeps_tail = false;                // stderr
    std::shared_ptr<FileWriter::File> tee;  // null: not teed
    std::optional<LineFilter> filter;       // needs `filtered`
    std::shared_ptr<FileWriter::File> filtered;
    GatherLink* link = nullptr;  // null: not to the coordinator
    std::uint64_t trip = 0;      // of the link
    rendezvous::Lines lines;     // what all messages have in common
    std::function<void()> on_first_bytes{};
  };

  WorkerStream(asio::io_context& io, std::span<char> buffer, Console& console, FileWriter& writer,
               Setup setup, std::function<void()> on_end);
  WorkerStream(const WorkerStream&) = delete;
  WorkerStream& operator=(const WorkerStream&) = delete;
  ~WorkerStream();

  Result<void> start(UniqueFd read_end) { return reader_->start(std::move(read_end)); }
  // There is room on the console, or in the file's queue, again.
  void wake() { reader_->wake(); }
  void take_now() { reader_->take_now(); }
  void close() { reader_->close(); }
  bool is_closed() const { return reader_->is_closed(); }

  // `lines` did not come through to the coordinator.
  void take_back(const rendezvous::Lines& lines);
  // The rest of them goes to the console.
  void leave_link();

  // No read of its output is pending now.
  bool is_held_up() const {
    if (setup_.tee && writer_.is_congested()) return true;
    return goes_by_link() ? setup_.link->is_congested() : console_.is_congested();
  }
  std::uint64_t taken_bytes() const { return taken_bytes_; }
  std::string_view tail() const { return tail_.bytes(); }

 private:
  bool goes_by_link() const { return setup_.link != nullptr && setup_.link->trip() == setup_.trip; }
  void take(std::string_view bytes);
  void show(std::string_view bytes, WallTime read_at);
  void show_end(WallTime read_at);
  void send(bool is_end);
  void end();

  Console& console_;
  FileWriter& writer_;
  Setup setup_;
  FormattedLines lines_;
  LineBuffer sent_lines_;
  LineQueue to_send_;
  Tail tail_;
  std::uint64_t taken_bytes_ = 0;
  std::function<void()> on_end_;
  std::shared_ptr<PipeReader> reader_;
};

}  // namespace drun::agent

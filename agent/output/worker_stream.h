// edge. One stream of one worker that passes through drun: from its pipe to the console, and to its
// log file when teed; or to the coordinator instead, as long as its trip (gather_link.h) lasts.
//
// Flow:    reads only while the console (or the link) is not congested, so a slow console slows the
//          worker. Files get the bytes as they are, before the console does, also when the console
//          is gone.
// Owner:   Output. The console, the link, the log's sink and the filtered file must outlive it or
//          its end.
// Thread:  the io_context's only.   Errors: a file that cannot be written is logged once, and left.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/output/console.h"
#include "agent/output/gather/gather_link.h"
#include "agent/output/line_buffer.h"
#include "agent/output/line_filter.h"
#include "agent/output/line_form.h"
#include "agent/output/pipe_reader.h"
#include "agent/output/tail.h"
#include "rendezvous/log.h"
#include "rendezvous/unique_fd.h"

namespace drun::agent {

// A file that we write, and what it is called.
struct LogFile {
  UniqueFd fd;
  std::string path;
  bool has_failed = false;
};

class WorkerStream {
 public:
  struct Setup {
    std::uint64_t number = 0;          // unique among all streams of all rounds, not 0
    LineForm form;                     // on the console
    bool keeps_tail = false;           // stderr
    LogFile tee;                       // without fd: not teed
    std::optional<LineFilter> filter;  // needs `filtered`
    LogFile* filtered = nullptr;
    GatherLink* link = nullptr;  // null: not to the coordinator
    std::uint64_t trip = 0;      // of the link
    rendezvous::Lines lines;     // what all messages have in common
  };

  WorkerStream(asio::io_context& io, std::span<char> buffer, Console& console, Log log, Setup setup,
               std::function<void()> on_end);
  WorkerStream(const WorkerStream&) = delete;
  WorkerStream& operator=(const WorkerStream&) = delete;
  ~WorkerStream();

  Result<void> start(UniqueFd read_end) { return reader_->start(std::move(read_end)); }
  // There is room on the console again.
  void wake() { reader_->wake(); }
  void take_now() { reader_->take_now(); }
  void close() { reader_->close(); }
  bool is_closed() const { return reader_->is_closed(); }

  // `lines` did not come through to the coordinator.
  void take_back(const rendezvous::Lines& lines);
  // The rest of them goes to the console.
  void leave_link();

  // What it prints is waited for by nobody at the moment.
  bool is_held_up() const {
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
  void append(LogFile& file, std::string_view bytes) const;

  Console& console_;
  Log log_;
  Setup setup_;
  FormedLines lines_;
  LineBuffer sent_lines_;
  LineQueue to_send_;
  Tail tail_;
  std::uint64_t taken_bytes_ = 0;
  std::function<void()> on_end_;
  std::shared_ptr<PipeReader> reader_;
};

}  // namespace drun::agent

// edge. One stream of one worker that passes through drun: from its pipe to the console, and to its
// log file when teed; or to the coordinator instead, as long as its trip (gather_link.h) lasts.
//
// Flow:    reads only while neither the console (or the link) nor, when it is teed, the writer of
//          its file is congested: a slow one slows the worker. Files get the bytes as they are,
//          also when the console is gone.
// Owner:   Output. The console, the link and the writer must outlive it or its end.
// Thread:  the io_context's only.   Errors: none; those of files are the writer's.
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
#include "agent/output/file_writer.h"
#include "agent/output/gather/gather_link.h"
#include "agent/output/line_buffer.h"
#include "agent/output/line_filter.h"
#include "agent/output/line_form.h"
#include "agent/output/pipe_reader.h"
#include "agent/output/tail.h"
#include "rendezvous/unique_fd.h"

namespace drun::agent {

class WorkerStream {
 public:
  struct Setup {
    std::uint64_t number = 0;               // unique among all streams of all rounds, not 0
    LineForm form;                          // on the console
    bool keeps_tail = false;                // stderr
    std::shared_ptr<FileWriter::File> tee;  // null: not teed
    std::optional<LineFilter> filter;       // needs `filtered`
    std::shared_ptr<FileWriter::File> filtered;
    GatherLink* link = nullptr;  // null: not to the coordinator
    std::uint64_t trip = 0;      // of the link
    rendezvous::Lines lines;     // what all messages have in common
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

  // What it prints is waited for by nobody at the moment.
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
  FormedLines lines_;
  LineBuffer sent_lines_;
  LineQueue to_send_;
  Tail tail_;
  std::uint64_t taken_bytes_ = 0;
  std::function<void()> on_end_;
  std::shared_ptr<PipeReader> reader_;
};

}  // namespace drun::agent

// edge. The coordinator's end of --gather-logs: lines of other nodes' workers, to this process'
// console and to a file for each rank and stream.
//
// Flow:    takes all that comes (how much that can be is line_window.h's), and passes it on as the
//          console and the files' writer take it. Some at a time, so that this node's own workers
//          have their turn.
// Files:   <place>/attempt_<round>/<rank>/{stdout.log,stderr.log}, made when the first of it comes.
// Owner:   Output or HostLines, as are the consoles and the writer, which outlive it.
// Thread:  the io_context's only.   Errors: a file that cannot be written is logged once, and left.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "agent/output/console.h"
#include "agent/output/file_writer.h"
#include "agent/output/line_format.h"
#include "agent/output/log_files.h"
#include "rendezvous/coordinator/log_collector.h"

namespace drun::agent {

class GatheredLines final : public rendezvous::LogSink {
 public:
  struct Listener {
    std::function<void(rendezvous::Peer, std::size_t cost)> on_taken;
    std::function<void()> on_empty;
  };
  struct Places {
    Console& out;
    Console& err;
    std::shared_ptr<LogFiles> files;
    FileWriter& writer;
  };

  GatheredLines(asio::io_context& io, Log log, const OutputSpec& spec, Places places,
                Listener listener);

  void on_lines(const rendezvous::LinesFrom& from, rendezvous::Lines lines) override;
  void on_lines_end(rendezvous::Peer peer) override;

  // There is room on the console, or in the files' queue, again.
  void wake();
  bool is_empty() const { return waiting_.empty(); }
  bool has_files() const { return has_files_; }

 private:
  struct Waiting {
    rendezvous::LinesFrom from;
    std::optional<rendezvous::Lines> lines;  // absent: the end of all that comes from there
  };
  struct Stream {
    std::uint64_t number = 0;
    std::optional<FormattedLines> form;
    std::shared_ptr<FileWriter::File> file;
    std::string held;  // of a line whose rest is still to come
    bool is_stderr = false;
    WallTime last{};
  };
  using Key = std::pair<rendezvous::Peer, int>;  // 2 * local rank, + 1 for stderr

  void pass_on_one();
  void pass_on(const rendezvous::LinesFrom& from, rendezvous::Lines& lines);
  Stream& stream_of(const rendezvous::LinesFrom& from, const rendezvous::Lines& lines);
  std::shared_ptr<FileWriter::File> open_file(const rendezvous::LinesFrom& from,
                                              const rendezvous::Lines& lines);
  void end(Stream& stream);
  Console& console_of(bool is_stderr) const;

  asio::io_context& io_;
  Log log_;
  const OutputSpec& spec_;
  Places places_;
  Listener listener_;
  std::deque<Waiting> waiting_;
  std::map<Key, Stream> streams_;
  std::uint64_t streams_made_ = std::uint64_t{1} << 63U;  // Output's own are below
  bool is_posted_ = false;
  bool has_files_ = false;
  bool has_complained_ = false;
  std::shared_ptr<char> alive_ = std::make_shared<char>();  // tells late handlers that it is gone
};

}  // namespace drun::agent

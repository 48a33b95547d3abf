// edge. The coordinator's end of --gather-logs: writes the lines of other nodes' workers to this
// process's console and to one file per rank and stream.
//
// Flow:    accepts everything that arrives (line_window.h limits how much that can be) and passes
//          it on at the speed of the console and the file writer, a part at a time, so that this
//          node's own workers are not delayed.
// Files:   <place>/attempt_<round>/<rank>/{stdout.log,stderr.log}, created with the first bytes.
// Owner:   Output or HostLines, which also own the consoles and the writer; these must outlive it.
// Thread:  the io_context's only.
// Errors:  a file that cannot be written is logged once, and then skipped.
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
#include "rendezvous/server/log_collector.h"

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

  // The console or the file queue has room again.
  void wake();
  bool is_empty() const { return waiting_.empty(); }
  bool has_files() const { return has_files_; }

 private:
  struct Waiting {
    rendezvous::LinesFrom from;
    std::optional<rendezvous::Lines> lines;  // absent: the end of that node's lines
  };
  struct Stream {
    std::uint64_t number = 0;
    std::optional<FormattedLines> form;
    std::shared_ptr<FileWriter::File> file;
    std::string held;  // the beginning of an unfinished line
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
  std::shared_ptr<char> alive_ = std::make_shared<char>();  // expired: this object was destroyed
};

}  // namespace drun::agent

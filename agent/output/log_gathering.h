// edge. --gather-logs: the path of a node's lines to the coordinator or to the launcher of --hosts
// (GatherLink, StdoutLines), and the coordinator's end, which shows and keeps those of all nodes
// (GatheredLines).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/output/console.h"
#include "agent/output/console_lines.h"
#include "agent/output/file_writer.h"
#include "agent/output/log_files.h"
#include "rendezvous/member/client.h"
#include "rendezvous/protocol/control_message.h"
#include "rendezvous/server/log_collector.h"

namespace drun::agent {

// --- Queue: cuts workers' lines into messages, sends as much as the receiver allows, and keeps
// them until the receiver has passed them on.
//
//   push --> waiting -- next, as far as the window goes --> under way -- granted --> gone
//               +------------------------ close ---------------+---> back to the caller
//
// First in, first out; the pieces of a long line are consecutive. While is_congested(), push
// nothing more: this is the case from more than kMostWaitingBytes until at most kFewWaitingBytes
// wait. One window is under way in addition.

inline constexpr std::size_t kMostWaitingBytes = std::size_t{256} << 10;
inline constexpr std::size_t kFewWaitingBytes = std::size_t{64} << 10;

class LineSender {
 public:
  void open(std::size_t window_bytes);
  // Removes and returns the lines that were not granted, oldest first.
  std::vector<rendezvous::Lines> close();

  // Sends `text` with the other fields of `like`; is_end is set on its last message only.
  void push(const rendezvous::Lines& like, std::string_view text);
  // The message that can be sent now, or null. Valid until the next call of any method.
  const rendezvous::Lines* next();
  void granted(std::size_t bytes);

  bool is_congested() const { return is_congested_; }
  bool is_idle() const { return waiting_.empty() && under_way_.empty(); }

 private:
  void add(rendezvous::Lines lines);

  std::size_t window_bytes_ = 0;
  std::size_t waiting_bytes_ = 0;
  std::size_t under_way_bytes_ = 0;
  std::size_t granted_bytes_ = 0;  // not yet a whole message
  bool is_congested_ = false;
  std::deque<rendezvous::Lines> waiting_;
  std::deque<rendezvous::Lines> under_way_;
};

// --- Link between Output, which has the lines, and Client, which has the connection
//
// Each connection is a trip, identified by a number; a stream belongs to the trip during which it
// was opened. When the trip ends, on_lost returns the lines that the receiver has not passed on,
// and the node shows them itself. The listener is called from the loop, or from within push() and
// give_up(). Output owns it.

class GatherLink final : public rendezvous::Client::LineListener {
 public:
  struct Listener {
    std::function<void()> on_room;  // not congested any more
    std::function<void()> on_idle;  // everything has been passed on
    std::function<void(const std::vector<rendezvous::Lines>&)> on_lost;
  };

  explicit GatherLink(Listener listener) : listener_(std::move(listener)) {}

  // The current trip; absent: no connection.
  std::optional<std::uint64_t> trip() const { return send_ ? std::optional(trip_) : std::nullopt; }
  bool is_congested() const { return sender_.is_congested(); }
  bool is_idle() const { return sender_.is_idle(); }

  void push(const rendezvous::Lines& like, std::string_view text);
  // Drops all lines; no trip starts any more.
  void give_up();

  void on_lines_wanted(std::size_t window_bytes, Send send) override;
  void on_lines_taken(std::size_t bytes) override;
  void on_lines_lost() override;

 private:
  void send_all();

  Listener listener_;
  LineSender sender_;
  Send send_;  // null: no connection
  std::uint64_t trip_ = 0;
  bool has_given_up_ = false;
};

// --- Lines to the launcher of --hosts: a trip of GatherLink over the channel (host_channel.h)
//
// One window of lines can be under way. Bytes that the channel accepts while it is not congested
// are granted again. A failed channel grants everything.
// Output owns it, the channel and the link; the latter two must outlive it.

class StdoutLines {
 public:
  // `from`: the identity of a worker of this node, by local rank.
  StdoutLines(asio::io_context& io, Console& channel, GatherLink& link,
              std::function<rendezvous::LinesFrom(int local_rank)> from);

  // Call before the first round.
  void start();
  // The channel has room again.
  void wake();

 private:
  void send(const rendezvous::Lines& lines);

  asio::io_context& io_;
  Console& channel_;
  GatherLink& link_;
  std::function<rendezvous::LinesFrom(int)> from_;
  std::size_t owed_bytes_ = 0;
  bool is_posted_ = false;
  std::shared_ptr<char> alive_ = std::make_shared<char>();  // expired: this object was destroyed
};

// --- The coordinator's end: writes the lines of other nodes' workers to this process's console and
// to one file per rank and stream.
//
// Flow:    accepts everything that arrives (line_window.h limits how much that can be) and passes
//          it on at the speed of the console and the file writer, a part at a time, so that this
//          node's own workers are not delayed.
// Files:   <place>/attempt_<round>/<rank>/{stdout.log,stderr.log}, created with the first bytes.
// Owner:   Output or HostLines, which also own the consoles and the writer; these must outlive it.
// Errors:  a file that cannot be written is logged once, and then skipped.

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
  bool has_warned_ = false;
  std::shared_ptr<char> alive_ = std::make_shared<char>();  // expired: this object was destroyed
};

}  // namespace drun::agent

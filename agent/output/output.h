// edge. Routes everything that workers print, and drun's own log, from its sources to its sinks.
// Also keeps the log directory and the last lines of stderr before a failure.
//
//   worker stdout, stderr  worker_stream.h   \             / console          console.h
//   drun's own log         say()              > lines, bytes  files           file_writer.h
//   other nodes' lines     gathered_lines.h  /             \ uplink           log_uplink.h
//
// Order:   prepare -> { open_round -> its callback: spawn the workers -> close_worker_ends
//          -> workers run -> drain -> its callback } per round -> finish.
// Blocks:  only prepare() and finish(), which run before and after the job. In between, operations
//          that a file system can block run in the thread of a FileWriter.
// Promise: a worker's lines reach the console whole and in order, and none is lost. A slow console
//          or log directory slows the workers (their pipes fill); it neither grows memory nor
//          blocks this process. If the console fails, this is logged once and the workers continue.
// Gather:  with OutputSpec::gathers, the lines of all nodes go to the coordinator's Output. There,
//          log_sink() shows them (gathered_lines.h); on other nodes, line_listener() sends them
//          (log_uplink.h). A node's lines count as delivered when the coordinator has passed them
//          on; lines that can no longer reach it are shown on the node itself. With
//          gathers_by_channel they go to the launcher of --hosts instead.
// Memory:  up to kHighWaterBytes and one read per console; up to 1 MiB per stream for a line
//          without an end (longer lines are written in pieces, see line_buffer.h).
// Owner:   Agent; destroy it after io_context.run() has returned. stop() makes it return.
// Thread:  the io_context's only.   Errors: Result, with the path. Never throws.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/output/line_format.h"
#include "agent/output/watchdog_lines.h"
#include "agent/spec.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/world.h"
#include "rendezvous/member/client.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/server/log_collector.h"

namespace drun::agent {

// The descriptors of a worker, valid until close_worker_ends(). Output owns them (or they are
// drun's own 1 and 2, or /dev/null); pass them to spawn, which duplicates them.
struct WorkerStreams {
  int stdout_fd = 1;
  int stderr_fd = 2;
  std::string error_file;   // TORCHELASTIC_ERROR_FILE of this worker; empty: no log files
  std::string stderr_file;  // the file to which its stderr is redirected or teed; empty: none
};

// drun's descriptors for workers' lines. Tests use others than 1 and 2.
struct ConsoleFds {
  int out = 1;
  int err = 2;
};

class Output {
 public:
  Output(asio::io_context& io, Log log, OutputSpec spec, std::string host, ConsoleFds console = {});
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output();

  // Call once, before joining. Creates <log_dir>/<run_id>_<random>/, opens the console, and sets
  // SIGPIPE to ignored for this process. Errors: Usage when log_dir cannot be used, else System.
  Result<void> prepare(std::string_view run_id);

  // Creates attempt_<round>/ and in it the files of this node's workers. Opens up to 2 descriptors
  // per worker that stay open, and 4 until close_worker_ends. A local rank that OutputSpec::streams
  // does not list gets StreamPlan{}. Streams of the previous round must have been drained;
  // otherwise they are dropped. `on_open` is called once, from the loop, with the streams by local
  // rank; after stop() with an error.
  using Opened = std::function<void(Result<std::vector<WorkerStreams>>)>;
  void open_round(const World& world, Opened on_open);

  // Closes our copies of the descriptors in WorkerStreams. Call when the workers are spawned. Can
  // be called repeatedly.
  void close_worker_ends();

  // Call when the round's last worker has exited. Reads every pipe to its end, and passes its
  // content and the lines of other nodes to the console. If a descendant keeps a pipe open, waits
  // for it up to `at_most`, then takes the pipe's current content and closes it. Until::Written
  // waits for a slow console or log directory without limit, as any program would; stop() ends that
  // wait. Until::Queued only waits until they are not congested, so that a few lines that nothing
  // reads do not delay the node's end of a round. `on_drained` is called exactly once, never from
  // within drain().
  enum class Until { Queued, Written };
  void drain(std::chrono::milliseconds at_most, std::function<void()> on_drained,
             Until until = Until::Written);

  // The worker's last lines of stderr: at most 20 of up to 4 KiB, without line ends; the oldest may
  // lack its beginning. Reads the pipe's current content first, so the lines are complete once the
  // worker is reaped. Absent if stderr does not pass through drun: redirected to
  // WorkerStreams::stderr_file, or raw. Can be called until the next open_round.
  std::optional<std::vector<std::string>> stderr_tail(int local_rank);

  // The last error that the worker wrote before those lines, if none of them is one; empty if there
  // is none (last_error.h). Call it after stderr_tail().
  std::string error_before_tail(int local_rank) const;

  // Runs `job` in the log directory's thread, after pending writes to its files. `done` is called
  // once, from the loop; `has_run` is false after stop().
  void run_off_loop(std::function<void()> job, std::function<void(bool has_run)> done);

  // Null before prepare(), and without OutputSpec::gathers. `on_taken` is called with the peer and
  // the size of lines that have been passed on.
  rendezvous::LogSink* log_sink(std::function<void(std::uint64_t, std::size_t)> on_taken);
  rendezvous::Client::LineListener* line_listener();

  // True while the console does not accept the pending output.
  bool is_held_up() const;

  // A number that changes whenever the worker prints to a pipe or file, except for lines of
  // PyTorch's watchdog in a pipe (watchdog_lines.h). Absent if drun does not see its output (raw
  // mode, or filtered out). For a file, it is the state that the previous call
  // requested. While the console or file system is blocked, it changes at every call, because a
  // worker that waits for them is not silent.
  std::optional<std::uint64_t> printed(int local_rank);
  // Whether it writes to a file itself, so that drun knows only the size of its output.
  bool writes_to_file(int local_rank) const;
  // The first timeout of a collective that PyTorch's watchdog in the worker has reported. Absent if
  // its stderr does not pass through drun. Can be called until the next open_round.
  std::optional<WatchdogLines::Timeout> reported_timeout(int local_rank) const;

  // Calls `on_first` from the loop when a worker's first output of a round passes through here.
  // Call before the first open_round.
  void watch_first_prints(std::function<void(int local_rank)> on_first);

  // Writes a line of drun's own log to the console's stderr, between the workers' lines (it ends an
  // unfinished line first). Never waits: if the console is blocked, lines beyond kOwnLinesBytes are
  // dropped, and their number is logged later. Before prepare(), writes directly.
  void say(std::string_view line);

  // Writes text that is erased later to the terminal (agent/output/progress.h). Dropped if stderr
  // is busy.
  void draw(std::string_view bytes);

  // Sends a control message to the launcher (agent/output/host_channel.h). Never waits; dropped if
  // there is no channel.
  void send_to_launcher(std::string_view control);

  // After stop(): the rest of a partly written frame. Must be written to the channel before any
  // other frame.
  std::string unfinished_frame() const;

  // Of this node's workers in `round`, by local rank; empty unless that round's files are open.
  std::vector<WorkerLogs> worker_logs(int round) const;

  // A log file on this node; with OutputSpec::gathers on the coordinator's, of any rank of the job.
  // In a round before the latest: of the worker that has the rank now.
  struct RankRound {
    int rank = 0;
    int round = 0;
  };
  std::optional<RankLog> rank_log(const RankRound& of, bool is_stderr) const;

  // The run's log directory; empty: none.
  std::string log_place() const;

  // Call once, after the last drain and the loop's end. Ends an unfinished last line on a terminal
  // and waits up to `at_most` (absent: without limit) until the console and files have taken
  // everything. Removes the run's directory if it is temporary and holds no stream that the user
  // redirected or teed; otherwise it stays at log_place().
  void finish(std::optional<std::chrono::milliseconds> at_most = std::nullopt);

  // Gives up: closes all pipes and drops pending output. A pending on_drained is called from the
  // loop. Use this for a second Ctrl-C, and before destruction if not drained.
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace drun::agent

// edge. Everything workers print: their streams' pipes and files, the console, the last lines
// before a crash, the log directory; and drun's own log. A router between sources and sinks:
//
//   worker stdout, stderr  worker_stream.h   \             / console          console.h
//   drun's own log         say()              > lines, bytes  files           file_writer.h
//   other nodes' lines     gathered_lines.h  /             \ uplink           log_uplink.h
//
// Life:    prepare -> { open_round -> its callback: spawn the workers -> close_worker_ends
//          -> workers run -> drain -> its callback } once a round -> finish.
// Blocks:  prepare() and finish() alone, which run before and after the job. Between them whatever
//          a file system can block runs in the thread of its FileWriter.
// Promise: a worker's lines reach the console whole and in order; nothing is lost; a console that
//          or a log directory that does not take them slows the workers (their pipes fill) instead
//          of growing memory or blocking this process. A console that is gone is logged once and
//          the workers continue.
// Gather:  with OutputSpec::gathers the lines of all nodes go to the coordinator's Output: there
//          line_taker() shows them (gathered_lines.h), elsewhere line_listener() sends them
//          (log_uplink.h). Those of this node count as handed over once the other has passed them
//          on; what cannot reach it any more is shown here. With gathers_by_channel they go to the
//          starter of --hosts instead (agent/output/log_uplink.h).
// Units:   at most kHighWaterBytes and one read wait for a console; 1 MiB a stream for a line
//          without an end (longer ones come out in pieces, see line_buffer.h).
// Owner:   the agent; destroyed after io_context.run() has returned. stop() makes it return.
// Thread:  the io_context's only.   Errors: Result; messages name the path. Never throws.
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
#include "agent/spec.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/coordinator/log_collector.h"
#include "rendezvous/job/world.h"
#include "rendezvous/member/client.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

// The descriptors of a worker. They stay Output's (or are drun's own 1 and 2, or /dev/null): pass
// them to spawn, which duplicates them; valid until close_worker_ends().
struct WorkerStreams {
  int stdout_fd = 1;
  int stderr_fd = 2;
  std::string error_file;   // TORCHELASTIC_ERROR_FILE of this worker; empty: no files at all
  std::string stderr_file;  // where its stderr is redirected or teed to; empty: nowhere
};

// drun's own descriptors that workers' lines go to. Others than 1 and 2 in tests.
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

  // Once, before joining: makes <log_dir>/<run_id>_<random>/, looks at the console, and ignores
  // SIGPIPE for this process from here on. Errors: Usage when log_dir cannot be used, else System.
  Result<void> prepare(std::string_view run_id);

  // Makes attempt_<round>/ anew, and in it what each worker of this node writes to: by local rank,
  // up to 2 descriptors each that stay, 4 until close_worker_ends. A local rank that
  // OutputSpec::streams does not list gets StreamPlan{}. All streams of the round before must have
  // been drained (or are dropped here). `on_open` is called once, from the loop; after stop() with
  // an error.
  using Opened = std::function<void(Result<std::vector<WorkerStreams>>)>;
  void open_round(const World& world, Opened on_open);

  // Once spawned: closes our copies of the ends handed out. Any number of times.
  void close_worker_ends();

  // After the round's last worker is gone: reads every pipe to its end and hands all of it, and
  // what other nodes have sent, to the console. A descendant that keeps a pipe open is waited for
  // `at_most`, then what the pipe holds is taken and it is closed. With Until::Written a console or
  // a log directory that is slow is waited for without limit, as any program would: stop() ends
  // that. With Until::Queued it is enough that they are not congested: a node's end of a round is
  // then not held up by a few lines that nothing reads. `on_drained` is called once and only once,
  // never from within drain().
  enum class Until { Queued, Written };
  void drain(std::chrono::milliseconds at_most, std::function<void()> on_drained,
             Until until = Until::Written);

  // The worker's last lines of stderr, at most 20 of up to 4 KiB, without line ends; the oldest may
  // lack its beginning. Takes in what its pipe holds at this instant, so once the worker is reaped
  // they are complete. Absent when they did not pass through here: redirected to
  // WorkerStreams::stderr_file, or raw. Valid until the next open_round.
  std::optional<std::vector<std::string>> stderr_tail(int local_rank);

  // Runs `job` in the log directory's thread, after what was written to its files. `done` is called
  // once, from the loop; `has_run` is false after stop().
  void run_off_loop(std::function<void()> job, std::function<void(bool has_run)> done);

  // After prepare(), with OutputSpec::gathers; else null. `on_taken` is called for what
  // line_taker() has passed on.
  rendezvous::LogSink* line_taker(std::function<void(std::uint64_t, std::size_t)> on_taken);
  rendezvous::Client::LineListener* line_listener();

  // The console does not take what there is.
  bool is_held_up() const;

  // A number that changes whenever the worker has printed something, to a pipe or a file; absent:
  // drun does not see what it prints (raw mode, or filtered away). Of a file it is what the last
  // call asked for. While the console or the file system does not take what there is, it changes at
  // every call: a worker that waits for it is not silent.
  std::optional<std::uint64_t> printed(int local_rank);

  // `on_first` is called from the loop, once a round for each worker that prints something which
  // passes through here. Before the first open_round.
  void watch_first_prints(std::function<void(int local_rank)> on_first);

  // A line of drun's own log to the console's stderr, in turn with the workers' lines: it never
  // lands inside one (a newline is added). Never waits; where the console takes nothing, lines
  // beyond kOwnLinesBytes are counted, and the log says later how many are missing. Before
  // prepare() it is written at once.
  void say(std::string_view line);

  // Bytes for a terminal that are erased later (agent/output/progress.h). Left out where stderr is
  // busy.
  void draw(std::string_view bytes);

  // A control message to the starter (agent/output/host_channel.h). Never waits; dropped without a
  // channel.
  void tell_starter(std::string_view control);

  // After stop(): the rest of a frame on the channel that was written in part; must be written
  // before any other frame.
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

  // The run's directory; empty: none.
  std::string log_place() const;

  // Once, after the last drain and the loop's end: ends an unfinished last line on a terminal,
  // waits until the console and files have taken everything (absent: without a limit), and removes
  // the run's directory when it is a temporary one that holds no stream the user redirected or
  // teed; else log_place() stays and is worth telling.
  void finish(std::optional<std::chrono::milliseconds> at_most = std::nullopt);

  // Gives up at once: closes all pipes, drops what the console has not taken; a pending on_drained
  // is called from the loop. For a second Ctrl-C, and before destruction if not drained.
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace drun::agent

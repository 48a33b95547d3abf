// edge. Routes everything that workers print, and drun's own log, from its sources to its sinks.
// Also keeps the log directory and the last lines of stderr before a failure.
//
//   worker stdout, stderr  worker_stream.h   \             / console          console.h
//   drun's own log         say()              > lines, bytes  files           file_writer.h
//   other nodes' lines     log_gathering.h   /             \ uplink           log_gathering.h
//
// Order:   prepare -> { open_round -> its callback: spawn the workers -> close_worker_ends
//          -> workers run -> drain -> its callback } per round -> finish.
// Blocks:  only prepare() and finish(), which run before and after the job. In between, operations
//          that a file system can block run in the thread of a FileWriter.
// Promise: a worker's lines reach the console whole and in order, and none is lost. A slow console
//          or log directory slows the workers (their pipes fill); it neither grows memory nor
//          blocks this process. If the console fails, this is logged once and the workers continue.
// Gather:  with OutputSpec::gathers, the lines of all nodes go to the coordinator's Output. There,
//          log_sink() shows them; on other nodes, line_listener() sends them. A node's lines count
//          as delivered when the coordinator has passed them on; lines that can no longer reach it
//          are shown on the node itself. With gathers_by_channel they go to the launcher of --hosts
//          instead.
// Memory:  up to kHighWaterBytes and one read per console; up to 1 MiB per stream for a line
//          without an end (longer lines are written in pieces, see console_lines.h).
// Owner:   Agent; destroy it after io_context.run() has returned. stop() makes it return.
// Thread:  the io_context's only.   Errors: Result, with the path. Never throws.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
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
#include "agent/output/log_gathering.h"
#include "agent/output/stderr_record.h"
#include "agent/output/worker_stream.h"
#include "agent/spec.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"
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
  Output(asio::io_context& io, Log log, OutputSpec spec, std::string host, ConsoleFds fds = {});
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
  // wait. Until::WrittenOrStuck is the same, but gives up a log directory that has completed no
  // operation for kStuckAfter. Until::Queued only waits until the console and the log directory are
  // not congested, so that a few lines that nothing reads do not delay the node's end of a round,
  // and does not wait for a log directory that is stuck. `on_drained` is called exactly once, never
  // from within drain().
  enum class Until { Queued, Written, WrittenOrStuck };
  void drain(std::chrono::milliseconds at_most, std::function<void()> on_drained,
             Until until = Until::Written);

  // The worker's last lines of stderr: at most 20 of up to 4 KiB, without line ends; the oldest may
  // lack its beginning. Reads the pipe's current content first, so the lines are complete once the
  // worker is reaped. Absent if stderr does not pass through drun: redirected to
  // WorkerStreams::stderr_file, or raw. Can be called until the next open_round.
  std::optional<std::vector<std::string>> stderr_tail(int local_rank);

  // The last error that the worker wrote before those lines, if none of them is one; empty if there
  // is none (stderr_record.h). Call it after stderr_tail().
  std::string error_before_tail(int local_rank) const;

  // Whether the files of the current round remain when drun exits. Call it once they are open.
  bool keeps_files() const;

  // Runs `job` in the log directory's thread, after pending writes to its files. `done` is called
  // once, from the loop; `has_run` is false after stop().
  void run_off_loop(std::function<void()> job, std::function<void(bool has_run)> done) {
    log_writer_.run(std::move(job), std::move(done));
  }

  // Null before prepare(), and without OutputSpec::gathers. `on_taken` is called with the peer and
  // the size of lines that have been passed on.
  rendezvous::LogSink* log_sink(std::function<void(std::uint64_t, std::size_t)> on_taken);
  rendezvous::Client::LineListener* line_listener() {
    return link_ && !to_stdout_ ? &*link_ : nullptr;
  }

  // Whether text for stdout was lost because it could not be written, as on a full disk.
  bool has_lost_stdout() const { return out_ && out_->has_failed(); }

  // True while the console does not accept the pending output.
  bool is_held_up() const;

  // A number that changes whenever the worker prints to a pipe or file, except for lines of
  // PyTorch's watchdog in a pipe (stderr_record.h). Absent if drun does not see its output (raw
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
  void watch_first_prints(std::function<void(int local_rank)> on_first) {
    on_first_print_ = std::move(on_first);
  }

  // Shows prompts of the workers that read drun's standard input, which is a terminal. Call before
  // the first open_round.
  void show_prompts(StdinSource readers) { prompting_ = readers; }

  // Writes a line of drun's own log to the console's stderr, between the workers' lines (it ends an
  // unfinished line first). Never waits: if the console is blocked, lines beyond kOwnLinesBytes are
  // dropped, and their number is logged later. Before prepare(), writes directly.
  void say(std::string_view line);

  // Writes text that is erased later to the terminal (agent/output/progress.h). Dropped if stderr
  // is busy.
  void draw(std::string_view bytes) {
    if (own_lines_) own_lines_->draw(bytes);
  }

  // Sends a control message to the launcher (agent/output/host_channel.h). Never waits; dropped if
  // there is no channel.
  void send_to_launcher(std::string_view control);

  // After stop(): the rest of a partly written frame. Must be written to the channel before any
  // other frame.
  std::string unfinished_frame() const { return channel_ ? channel_->unfinished_frame() : ""; }

  // Of this node's workers in `round`, by local rank; empty unless that round's files are open.
  std::vector<WorkerLogs> worker_logs(int round) const;

  // A log file on this node; with OutputSpec::gathers on the coordinator's, of any rank of the job.
  // Absent if the rank was not on this node in that round.
  struct RankRound {
    int rank = 0;
    int round = 0;
  };
  std::optional<RankLog> rank_log(const RankRound& of, bool is_stderr) const;

  // The run's log directory; empty: none.
  const std::string& log_place() const { return files_->place(); }

  // Call once, after the last drain and the loop's end. Ends an unfinished last line on a terminal
  // and waits until `deadline` (absent: without limit; read again after each event) for the console
  // and files to take everything. Removes the run's directory if it is temporary and holds no
  // stream that the user redirected or teed; otherwise it stays at log_place().
  void finish(const std::optional<FileWriter::Time>& deadline = std::nullopt);

  // Gives up: closes all pipes and drops pending output. A pending on_drained is called from the
  // loop. Use this for a second Ctrl-C, and before destruction if not drained.
  void stop();

 private:
  using Stream = LogFiles::Stream;
  static constexpr std::array kStreams{Stream::Stdout, Stream::Stderr};
  static constexpr std::size_t index_of(Stream stream) { return stream == Stream::Stdout ? 0 : 1; }
  // A file that a worker writes itself, and its size as last seen.
  struct WatchedFile {
    std::string path;
    std::uint64_t size_bytes = 0;
    bool is_asked_for = false;
  };
  struct Worker {
    std::string stderr_file;
    bool has_printed = false;
    std::array<std::unique_ptr<WorkerStream>, 2> streams;  // null: does not pass through drun
    std::array<std::shared_ptr<WatchedFile>, 2> files;     // of streams that go only to a file
  };
  // The files of a round, opened in the log directory's thread.
  struct RoundFiles {
    struct File {
      std::string path;  // empty: none
      UniqueFd fd;
    };
    std::array<File, 2> filtered;
    std::vector<std::array<File, 2>> streams;  // by local rank
    std::optional<Error> error;
  };
  struct RoundPlace {
    int round = 0;
    bool keeps_attempt = false;  // other nodes' files may be there already
    std::vector<int> workers;    // their directories, by local rank
  };
  static Result<void> open_files(LogFiles& files, const RoundPlace& place, RoundFiles& opened);

  StreamPlan plan_of(int local_rank, Stream stream) const;
  Console& err() { return err_ ? *err_ : *out_; }
  Console& console_of(Stream stream) {
    return stream == Stream::Stderr && spec_.mode != OutputMode::Json ? err() : *out_;
  }
  // The name of its directory.
  int number_of(int local_rank) const {
    return spec_.gathers ? world_.base_rank + local_rank : local_rank;
  }
  LineOrigin origin_of(int local_rank, Stream stream) const;
  // This node's ranks from a round on. An elastic job may change them.
  struct RoundRanks {
    int first_round = 0;
    int base_rank = 0;
    int count = 0;
  };
  static constexpr std::size_t kMostRoundRanks = 64;
  // Null: it does not pass through drun.
  WorkerStream* stderr_of(int local_rank) const;
  void open_gathering();
  void take_back(const std::vector<rendezvous::Lines>& lines);
  void wake_all();
  std::unique_ptr<Console> make_console(int fd, std::string name);
  void open_consoles();
  bool holds_streams() const;
  void note_ranks();
  std::size_t pipe_bytes() const;
  RoundFiles files_of_round() const;
  void finish_opening(RoundFiles& opened);
  Result<std::vector<WorkerStreams>> open_streams(RoundFiles& opened);
  Result<WorkerStreams> open_worker(int local_rank, std::array<RoundFiles::File, 2>& files);
  Result<int> open_stream(int local_rank, Stream stream, RoundFiles::File file, Worker& worker);
  Result<int> open_null();
  Result<int> open_pipe(int local_rank, Stream stream, RoundFiles::File tee, Worker& worker);
  std::uint64_t size_of(const std::shared_ptr<WatchedFile>& file);
  void note_print(int local_rank);
  bool is_console_congested() const;
  bool is_flushed() const;
  int hand_out(UniqueFd fd);
  template <typename Action>
  void for_each_stream(Action action);
  void take_last();
  void check_drained();
  void note_stuck_log_directory();

  asio::io_context& io_;
  Log log_;
  OutputSpec spec_;
  std::string host_;
  ConsoleFds fds_;
  StdinSource prompting_ = StdinSource::DevNull;
  std::shared_ptr<LogFiles> files_ = std::make_shared<LogFiles>();
  World world_;
  std::unique_ptr<Console>
      channel_;  // with spec_.channel_fd: of out_ and err_, which come after it
  std::unique_ptr<Console> out_;
  std::unique_ptr<Console> err_;  // null: the same file as out_
  FileWriter log_writer_{io_,
                         log_,
                         {.on_room = [this] { wake_all(); },
                          .on_idle = [this] { check_drained(); },
                          .on_stuck = [this] { note_stuck_log_directory(); }}};
  // With spec_.gathers: lines sent by this node, and lines received by it.
  std::optional<GatherLink> link_;
  std::unique_ptr<GatheredLines> gathered_;
  std::optional<StdoutLines> to_stdout_;  // with spec_.gathers_by_channel, instead of gathered_
  std::function<void(std::uint64_t, std::size_t)> on_taken_;
  std::optional<std::uint64_t> trip_;  // of link_, for this round's streams
  std::optional<OwnLines> own_lines_;
  // kReadBytes; not filled with zeros, that takes longer than all reads
  std::unique_ptr<char[]> buffer_;
  std::uint64_t streams_made_ = 0;
  std::uint64_t looks_at_congestion_ = 0;
  std::array<std::shared_ptr<FileWriter::File>, 2> filtered_;
  std::function<void(int)> on_first_print_;
  std::vector<Worker> workers_;
  std::deque<RoundRanks> ranks_;  // oldest first
  std::vector<UniqueFd> worker_ends_;
  std::vector<UniqueFd> worker_files_;
  asio::steady_timer patience_;
  std::function<void()> on_drained_;
  Until drains_until_ = Until::Written;
  Opened on_open_;
  bool is_given_up_ = false;
  bool is_log_given_up_ = false;  // the log directory hangs
  bool keeps_streams_ = false;    // in files
};

}  // namespace drun::agent

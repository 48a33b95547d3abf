// edge. Output's inside, for output.cc (rounds, drains, the end) and output_streams.cc (a worker's
// streams) alone.
// Owner:   Output.   Thread: the io_context's only.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/output/file_writer.h"
#include "agent/output/gather/gather_link.h"
#include "agent/output/gather/gathered_lines.h"
#include "agent/output/gather/stdout_lines.h"
#include "agent/output/line_form.h"
#include "agent/output/log_files.h"
#include "agent/output/output.h"
#include "agent/output/worker_stream.h"

namespace drun::agent {

// One read. Larger ones don't make it faster (the copies no longer fit the cache).
inline constexpr std::size_t kReadBytes = std::size_t{128} << 10;

class Output::Impl {
 public:
  Impl(asio::io_context& io, Log log, OutputSpec spec, std::string host, ConsoleFds fds)
      : io_(io),
        log_(std::move(log)),
        spec_(std::move(spec)),
        host_(std::move(host)),
        fds_(fds),
        buffer_(std::make_unique_for_overwrite<char[]>(kReadBytes)),
        patience_(io) {}
  ~Impl() {
    on_drained_ = nullptr;
    on_open_ = nullptr;
    stop();
  }

  Result<void> prepare(std::string_view run_id);
  void open_round(const World& world, Opened on_open);
  void close_worker_ends() {
    worker_ends_.clear();
    for (UniqueFd& file : worker_files_) log_writer_.close(std::move(file));
    worker_files_.clear();
  }
  void drain(std::chrono::milliseconds at_most, std::function<void()> on_drained, Until until);
  std::optional<std::vector<std::string>> stderr_tail(int local_rank);
  void run_off_loop(std::function<void()> job, std::function<void(bool)> done) {
    log_writer_.run(std::move(job), std::move(done));
  }
  std::optional<std::uint64_t> printed(int local_rank);
  rendezvous::LineTaker* line_taker(std::function<void(std::uint64_t, std::size_t)> on_taken);
  rendezvous::Client::LineListener* line_listener() {
    return link_ && !to_stdout_ ? &*link_ : nullptr;
  }
  bool is_held_up() const {
    return (out_ && out_->is_congested()) || (err_ && err_->is_congested()) ||
           log_writer_.is_congested();
  }
  void say(std::string_view line);
  void draw(std::string_view bytes) {
    if (own_lines_) own_lines_->draw(bytes);
  }
  void tell_starter(std::string_view control);
  std::string unfinished_frame() const { return channel_ ? channel_->unfinished_frame() : ""; }
  const std::string& log_place() const { return files_->place(); }
  void finish(std::optional<std::chrono::milliseconds> at_most);
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
    std::array<std::unique_ptr<WorkerStream>, 2> streams;  // null: does not pass through drun
    std::array<std::shared_ptr<WatchedFile>, 2> files;     // of those that go to a file alone
  };
  // What a round needs of the file system: opened in the log directory's thread.
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
  // What its directory is called.
  int number_of(int local_rank) const {
    return spec_.gathers ? world_.base_rank + local_rank : local_rank;
  }
  LineOrigin origin_of(int local_rank, Stream stream) const;
  void open_gathering();
  void take_back(const std::vector<rendezvous::Lines>& lines);
  void wake_all();
  std::unique_ptr<Console> make_console(int fd, std::string name);
  void open_consoles();
  bool holds_streams() const;
  std::size_t pipe_bytes() const;
  RoundFiles files_of_round() const;
  void finish_opening(RoundFiles& opened);
  Result<std::vector<WorkerStreams>> open_streams(RoundFiles& opened);
  Result<WorkerStreams> open_worker(int local_rank, std::array<RoundFiles::File, 2>& files);
  Result<int> open_stream(int local_rank, Stream stream, RoundFiles::File file, Worker& worker);
  Result<int> open_null();
  Result<int> open_pipe(int local_rank, Stream stream, RoundFiles::File tee, Worker& worker);
  std::uint64_t size_of(const std::shared_ptr<WatchedFile>& file);
  bool is_flushed() const;
  int hand_out(UniqueFd fd);
  template <typename Deed>
  void for_each_stream(Deed deed);
  void take_last();
  void check_drained();

  asio::io_context& io_;
  Log log_;
  OutputSpec spec_;
  std::string host_;
  ConsoleFds fds_;
  std::shared_ptr<LogFiles> files_ = std::make_shared<LogFiles>();
  World world_;
  std::unique_ptr<Console>
      channel_;  // with spec_.channel_fd: of out_ and err_, which come after it
  std::unique_ptr<Console> out_;
  std::unique_ptr<Console> err_;  // null: the same file as out_
  FileWriter log_writer_{
      io_, log_, {.on_room = [this] { wake_all(); }, .on_idle = [this] { check_drained(); }}};
  // With spec_.gathers: what this node sends, and what it is sent.
  std::optional<GatherLink> link_;
  std::unique_ptr<GatheredLines> gathered_;
  std::optional<StdoutLines> to_stdout_;  // with spec_.gathers_by_channel, instead of gathered_
  std::function<void(std::uint64_t, std::size_t)> on_taken_;
  std::optional<std::uint64_t> trip_;  // of link_, for this round's streams
  std::optional<OwnLines> own_lines_;
  std::unique_ptr<char[]>
      buffer_;  // kReadBytes; not filled with zeros, that takes longer than all reads
  std::uint64_t streams_made_ = 0;
  std::uint64_t looks_at_congestion_ = 0;
  std::array<std::shared_ptr<FileWriter::File>, 2> filtered_;
  std::vector<Worker> workers_;
  std::vector<UniqueFd> worker_ends_;
  std::vector<UniqueFd> worker_files_;
  asio::steady_timer patience_;
  std::function<void()> on_drained_;
  Until drains_until_ = Until::Written;
  Opened on_open_;
  bool is_given_up_ = false;
  bool keeps_streams_ = false;  // in files
};

template <typename Deed>
void Output::Impl::for_each_stream(Deed deed) {
  for (Worker& worker : workers_)
    for (const auto& stream : worker.streams)
      if (stream && !stream->is_closed()) deed(*stream);
}

}  // namespace drun::agent

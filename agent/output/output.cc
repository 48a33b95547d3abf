#include "agent/output/output.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <csignal>
#include <cstdint>
#include <optional>
#include <utility>

#include "agent/output/label.h"
#include "agent/output/log_files.h"
#include "agent/output/worker_stream.h"

namespace drun::agent {
namespace {

// One read. Larger ones don't make it faster (the copies no longer fit the cache).
constexpr std::size_t kReadBytes = std::size_t{128} << 10;

// Pipes of a user without privileges share 64 MiB (pipe-user-pages-soft); beyond it every new pipe,
// also of other programs, is a single page. So the whole agent asks for an eighth at most.
constexpr std::size_t kAllPipesBytes = std::size_t{8} << 20;
constexpr std::size_t kLargestPipeBytes = std::size_t{1} << 20;
constexpr std::size_t kDefaultPipeBytes = std::size_t{64} << 10;

using Stream = LogFiles::Stream;
constexpr std::array kStreams{Stream::Stdout, Stream::Stderr};
constexpr std::size_t index_of(Stream stream) { return stream == Stream::Stdout ? 0 : 1; }

}  // namespace

class Output::Impl {
 public:
  Impl(asio::io_context& io, Log log, OutputSpec spec, std::string host, ConsoleFds fds)
      : io_(io),
        log_(std::move(log)),
        spec_(std::move(spec)),
        host_(std::move(host)),
        fds_(fds),
        buffer_(kReadBytes),
        patience_(io) {}
  ~Impl() {
    on_drained_ = nullptr;
    stop();
  }

  Result<void> prepare(std::string_view run_id);
  Result<void> open_round(const World& world);
  Result<WorkerStreams> open_worker(int local_rank);
  void close_worker_ends() { worker_ends_.clear(); }
  void drain(std::chrono::milliseconds at_most, std::function<void()> on_drained);
  std::vector<std::string> stderr_tail(int local_rank);
  std::optional<std::uint64_t> printed(int local_rank);
  void say(std::string_view line);
  const std::string& log_place() const { return files_.place(); }
  void finish();
  void stop();

 private:
  struct Worker {
    bool is_open = false;
    std::string stderr_file;
    std::array<std::unique_ptr<WorkerStream>, 2> streams;  // null: does not pass through drun
    std::array<std::string, 2> files;                      // of those that go to a file alone
  };

  StreamPlan plan_of(int local_rank, Stream stream) const;
  Console& console_of(Stream stream) { return stream == Stream::Stderr && err_ ? *err_ : *out_; }
  std::unique_ptr<Console> make_console(int fd, std::string name);
  bool holds_streams() const;
  std::size_t pipe_bytes() const;
  std::string label_of(int local_rank) const;
  Result<int> open_stream(int local_rank, Stream stream, Worker& worker);
  Result<int> open_null();
  Result<int> open_pipe(int local_rank, Stream stream, LogFile tee, Worker& worker);
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
  LogFiles files_;
  World world_;
  std::unique_ptr<Console> out_;
  std::unique_ptr<Console> err_;  // null: the same file as out_
  std::optional<LineBuffer> own_lines_;
  std::vector<char> buffer_;
  std::uint64_t streams_made_ = 0;
  std::uint64_t looks_at_congestion_ = 0;
  std::array<LogFile, 2> filtered_;
  std::vector<Worker> workers_;
  std::vector<UniqueFd> worker_ends_;
  asio::steady_timer patience_;
  std::function<void()> on_drained_;
};

Result<void> Output::Impl::prepare(std::string_view run_id) {
  assert(!out_);
  std::signal(SIGPIPE, SIG_IGN);
  out_ = make_console(fds_.out, "stdout");
  if (!is_same_file(fds_.out, fds_.err)) err_ = make_console(fds_.err, "stderr");
  own_lines_.emplace(++streams_made_, "");
  return files_.make(spec_.log_dir, run_id, holds_streams());
}

bool Output::Impl::holds_streams() const {
  for (const auto& streams : spec_.streams)
    for (const StreamPlan& plan : streams)
      if (plan.to_file) return true;
  return false;
}

std::unique_ptr<Console> Output::Impl::make_console(int fd, std::string name) {
  return std::make_unique<Console>(
      io_, log_, fd, std::move(name),
      Console::Listener{
          .on_room = [this] { for_each_stream([](WorkerStream& stream) { stream.wake(); }); },
          .on_empty = [this] { check_drained(); }});
}

Result<void> Output::Impl::open_round(const World& world) {
  assert(out_ && "prepare() comes first");
  for_each_stream([](WorkerStream& stream) { stream.close(); });
  workers_.clear();
  worker_ends_.clear();
  filtered_ = {};
  world_ = world;
  workers_.resize(static_cast<std::size_t>(world.local_world_size));
  if (const Result<void> made = files_.make_attempt(world.round); !made) return made;
  for (const Stream stream : kStreams) {
    const auto& filters =
        stream == Stream::Stdout ? spec_.duplicate_stdout_filters : spec_.duplicate_stderr_filters;
    if (filters.empty() || !files_.has_place()) continue;
    LogFile& file = filtered_[index_of(stream)];
    file.path = files_.filtered_path(stream);
    Result<UniqueFd> created = create_log(file.path);
    if (!created) return created.error();
    file.fd = std::move(*created);
  }
  return {};
}

Result<WorkerStreams> Output::Impl::open_worker(int local_rank) {
  assert(local_rank >= 0 && local_rank < world_.local_world_size);
  Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
  assert(!worker.is_open);
  worker.is_open = true;
  if (const Result<void> made = files_.make_worker_directory(local_rank); !made)
    return made.error();
  const Result<int> out = open_stream(local_rank, Stream::Stdout, worker);
  if (!out) return out.error();
  const Result<int> err = open_stream(local_rank, Stream::Stderr, worker);
  if (!err) return err.error();
  return WorkerStreams{.stdout_fd = *out,
                       .stderr_fd = *err,
                       .error_file = files_.error_path(local_rank),
                       .stderr_file = worker.stderr_file};
}

StreamPlan Output::Impl::plan_of(int local_rank, Stream stream) const {
  const auto index = static_cast<std::size_t>(local_rank);
  StreamPlan plan;
  plan.is_labelled = spec_.mode == OutputMode::Labelled;
  if (index < spec_.streams.size()) plan = spec_.streams[index][index_of(stream)];
  if (!files_.has_place()) plan.to_file = false;
  return plan;
}

Result<int> Output::Impl::open_stream(int local_rank, Stream stream, Worker& worker) {
  const StreamPlan plan = plan_of(local_rank, stream);
  LogFile file;
  if (plan.to_file) {
    file.path = files_.stream_path(local_rank, stream);
    Result<UniqueFd> created = create_log(file.path);
    if (!created) return created.error();
    file.fd = std::move(*created);
    if (stream == Stream::Stderr) worker.stderr_file = file.path;
  }
  if (plan.to_file && !plan.to_console) {
    worker.files[index_of(stream)] = file.path;
    return hand_out(std::move(file.fd));
  }
  if (!plan.to_console) return open_null();
  if (spec_.mode == OutputMode::Raw && !plan.to_file)
    return stream == Stream::Stdout ? fds_.out : fds_.err;
  return open_pipe(local_rank, stream, std::move(file), worker);
}

Result<int> Output::Impl::open_null() {
  UniqueFd fd(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!fd) return system_error("open /dev/null", errno);
  return hand_out(std::move(fd));
}

Result<int> Output::Impl::open_pipe(int local_rank, Stream stream, LogFile tee, Worker& worker) {
  Result<Pipe> pipe = make_pipe(pipe_bytes());
  if (!pipe) return pipe.error();
  const std::string label = label_of(local_rank);
  WorkerStream::Setup setup{.number = ++streams_made_,
                            .label = plan_of(local_rank, stream).is_labelled ? label : "",
                            .keeps_tail = stream == Stream::Stderr,
                            .tee = std::move(tee),
                            .filter = std::nullopt,
                            .filtered = &filtered_[index_of(stream)]};
  if (setup.tee.fd && setup.filtered->fd)
    setup.filter.emplace(
        stream == Stream::Stdout ? spec_.duplicate_stdout_filters : spec_.duplicate_stderr_filters,
        label);
  auto& made = worker.streams[index_of(stream)];
  made = std::make_unique<WorkerStream>(io_, buffer_, console_of(stream), log_, std::move(setup),
                                        [this] { check_drained(); });
  if (const Result<void> started = made->start(std::move(pipe->read_end)); !started)
    return started.error();
  return hand_out(std::move(pipe->write_end));
}

std::size_t Output::Impl::pipe_bytes() const {
  const std::size_t pipes = 2 * std::max<std::size_t>(1, workers_.size());
  return std::clamp(kAllPipesBytes / pipes, kDefaultPipeBytes, kLargestPipeBytes);
}

std::string Output::Impl::label_of(int local_rank) const {
  return fill_label(spec_.label_template, {.role_name = world_.role,
                                           .local_rank = local_rank,
                                           .rank = world_.base_rank + local_rank,
                                           .node_rank = world_.node_rank,
                                           .host = host_});
}

int Output::Impl::hand_out(UniqueFd fd) {
  worker_ends_.push_back(std::move(fd));
  return worker_ends_.back().get();
}

template <typename Deed>
void Output::Impl::for_each_stream(Deed deed) {
  for (Worker& worker : workers_)
    for (const auto& stream : worker.streams)
      if (stream && !stream->is_closed()) deed(*stream);
}

void Output::Impl::drain(std::chrono::milliseconds at_most, std::function<void()> on_drained) {
  assert(!on_drained_ && "one drain at a time");
  on_drained_ = std::move(on_drained);
  worker_ends_.clear();
  patience_.expires_after(at_most);
  patience_.async_wait([this](const error_code& ec) {
    if (ec || !on_drained_) return;
    // One that expired just before it was cancelled, in an earlier round.
    if (patience_.expiry() > asio::steady_timer::clock_type::now()) return;
    take_last();
  });
  asio::post(io_, [this] { check_drained(); });
}

// Whoever still holds a pipe is no worker of ours.
void Output::Impl::take_last() {
  std::size_t held = 0;
  for_each_stream([&held](WorkerStream& stream) {
    stream.take_now();
    if (!stream.is_closed()) ++held;
    stream.close();
  });
  if (held > 0)
    log_.info("workers' pipes closed, their descendants still hold them count=" +
              std::to_string(held));
}

void Output::Impl::check_drained() {
  if (!on_drained_) return;
  bool is_done = out_->is_empty() && (!err_ || err_->is_empty());
  for_each_stream([&is_done](WorkerStream&) { is_done = false; });
  if (!is_done) return;
  patience_.cancel();
  asio::post(io_, std::exchange(on_drained_, nullptr));
}

std::vector<std::string> Output::Impl::stderr_tail(int local_rank) {
  const auto index = static_cast<std::size_t>(local_rank);
  if (local_rank < 0 || index >= workers_.size()) return {};
  Worker& worker = workers_[index];
  if (WorkerStream* stream = worker.streams[1].get(); stream != nullptr) {
    stream->take_now();
    return last_lines(stream->tail());
  }
  return last_lines(worker.stderr_file.empty() ? "" : read_end_of(worker.stderr_file, kTailBytes));
}

std::optional<std::uint64_t> Output::Impl::printed(int local_rank) {
  const auto index = static_cast<std::size_t>(local_rank);
  if (local_rank < 0 || index >= workers_.size()) return std::nullopt;
  const Worker& worker = workers_[index];
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < worker.streams.size(); ++i) {
    struct stat about {};
    if (const WorkerStream* stream = worker.streams[i].get(); stream != nullptr) {
      if (stream->console().is_congested()) ++looks_at_congestion_;
      bytes += stream->taken_bytes();
    } else if (!worker.files[i].empty() && ::stat(worker.files[i].c_str(), &about) == 0) {
      bytes += static_cast<std::uint64_t>(about.st_size);
    } else {
      return std::nullopt;
    }
  }
  return bytes + looks_at_congestion_;
}

void Output::Impl::say(std::string_view line) {
  Console& console = console_of(Stream::Stderr);
  if (console.is_gone() || console.queue().size_bytes() > 4 * kHighWaterBytes) return;
  own_lines_->take(std::string(line) + "\n", console.queue());
  console.flush();
}

void Output::Impl::finish() {
  for (Console* console : {out_.get(), err_.get()}) {
    if (console == nullptr || console->is_gone() || !console->is_terminal()) continue;
    console->queue().end_line();
    console->flush();
  }
  if (files_.is_temporary() && !holds_streams()) files_.remove();
}

void Output::Impl::stop() {
  for_each_stream([](WorkerStream& stream) { stream.close(); });
  worker_ends_.clear();
  patience_.cancel();
  if (out_) out_->stop();
  if (err_) err_->stop();
  check_drained();
}

Output::Output(asio::io_context& io, Log log, OutputSpec spec, std::string host, ConsoleFds console)
    : impl_(std::make_unique<Impl>(io, std::move(log), std::move(spec), std::move(host), console)) {
}
Output::~Output() = default;

Result<void> Output::prepare(std::string_view run_id) { return impl_->prepare(run_id); }
Result<void> Output::open_round(const World& world) { return impl_->open_round(world); }
Result<WorkerStreams> Output::open_worker(int local_rank) { return impl_->open_worker(local_rank); }
void Output::close_worker_ends() { impl_->close_worker_ends(); }
void Output::drain(std::chrono::milliseconds at_most, std::function<void()> on_drained) {
  impl_->drain(at_most, std::move(on_drained));
}
std::vector<std::string> Output::stderr_tail(int local_rank) {
  return impl_->stderr_tail(local_rank);
}
std::optional<std::uint64_t> Output::printed(int local_rank) { return impl_->printed(local_rank); }
void Output::say(std::string_view line) { impl_->say(line); }
std::string Output::log_place() const { return impl_->log_place(); }
void Output::finish() { impl_->finish(); }
void Output::stop() { impl_->stop(); }

}  // namespace drun::agent

#include "agent/output/output.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "agent/wall_time.h"

namespace drun::agent {

// One read. Larger ones don't make it faster (the copies no longer fit the cache).
inline constexpr std::size_t kReadBytes = std::size_t{128} << 10;

template <typename Action>
void Output::for_each_stream(Action action) {
  for (Worker& worker : workers_)
    for (const auto& stream : worker.streams)
      if (stream && !stream->is_closed()) action(*stream);
}

Output::Output(asio::io_context& io, Log log, OutputSpec spec, std::string host, ConsoleFds fds)
    : io_(io),
      log_(std::move(log)),
      spec_(std::move(spec)),
      host_(std::move(host)),
      fds_(fds),
      buffer_(std::make_unique_for_overwrite<char[]>(kReadBytes)),
      patience_(io) {}

Output::~Output() {
  on_drained_ = nullptr;
  on_open_ = nullptr;
  stop();
}

Result<void> Output::prepare(std::string_view run_id) {
  assert(!out_);
  std::signal(SIGPIPE, SIG_IGN);
  open_consoles();
  own_lines_.emplace(err(), log_, ++streams_made_);
  if (spec_.gathers) open_gathering();
  Result<void> made = files_->make(spec_.log_dir, run_id, holds_streams());
  log_writer_.set_place("the log directory", files_->place());
  return made;
}

void Output::open_consoles() {
  if (spec_.channel_fd) {
    channel_ = make_console(*spec_.channel_fd, "the channel to the launcher");
    channel_->as_channel();
    out_ = std::make_unique<Console>(*channel_, FrameType::Out);
    err_ = std::make_unique<Console>(*channel_, FrameType::Err);
    return;
  }
  out_ = make_console(fds_.out, "stdout");
  if (!is_same_file(fds_.out, fds_.err)) err_ = make_console(fds_.err, "stderr");
}

bool Output::keeps_files() const {
  return !files_->is_temporary() || keeps_streams_ || (gathered_ && gathered_->has_files());
}

bool Output::holds_streams() const {
  for (const auto& streams : spec_.streams)
    for (const StreamPlan& plan : streams)
      if (plan.to_file) return true;
  return false;
}

std::unique_ptr<Console> Output::make_console(int fd, std::string name) {
  return std::make_unique<Console>(io_, log_, fd, std::move(name),
                                   Console::Listener{.on_room = [this] { wake_all(); },
                                                     .on_empty = [this] { check_drained(); }});
}

void Output::open_gathering() {
  link_.emplace(GatherLink::Listener{
      .on_room = [this] { wake_all(); },
      .on_idle = [this] { check_drained(); },
      .on_lost = [this](const std::vector<rendezvous::Lines>& lines) { take_back(lines); }});
  if (spec_.gathers_by_channel) {
    assert(channel_);
    to_stdout_.emplace(io_, *channel_, *link_, [this](int local_rank) {
      return rendezvous::LinesFrom{.node_rank = world_.node_rank,
                                   .rank = world_.base_rank + local_rank,
                                   .role = role_of(world_, local_rank).name};
    });
    return to_stdout_->start();
  }
  gathered_ = std::make_unique<GatheredLines>(
      io_, log_, spec_, GatheredLines::Places{*out_, err(), files_, log_writer_},
      GatheredLines::Listener{
          .on_taken = [this](std::uint64_t peer, std::size_t cost) { on_taken_(peer, cost); },
          .on_empty = [this] { check_drained(); }});
}

rendezvous::LogSink* Output::log_sink(std::function<void(std::uint64_t, std::size_t)> on_taken) {
  on_taken_ = std::move(on_taken);
  return gathered_.get();
}

// The connection to the coordinator is lost: shows the lines that it may not have shown.
void Output::take_back(const std::vector<rendezvous::Lines>& lines) {
  for (const rendezvous::Lines& each : lines) {
    const auto local_rank = static_cast<std::size_t>(each.local_rank);
    if (each.round != world_.round || local_rank >= workers_.size()) continue;
    const auto& stream = workers_[local_rank].streams[each.is_stderr ? 1 : 0];
    if (stream) stream->take_back(each);
  }
  for_each_stream([](WorkerStream& stream) { stream.leave_link(); });
}

void Output::wake_all() {
  for_each_stream([](WorkerStream& stream) { stream.wake(); });
  if (gathered_) gathered_->wake();
  if (to_stdout_) to_stdout_->wake();
  if (own_lines_) own_lines_->note_room();
  check_drained();
}

void Output::open_round(const World& world, Opened on_open) {
  assert(out_ && "call prepare() first");
  assert(!on_open_ && "one round at a time");
  for_each_stream([](WorkerStream& stream) { stream.close(); });
  workers_.clear();
  close_worker_ends();
  filtered_ = {};
  world_ = world;
  note_ranks();
  trip_ = link_ ? link_->trip() : std::nullopt;
  workers_.resize(static_cast<std::size_t>(world.local_world_size));
  on_open_ = std::move(on_open);
  auto opened = std::make_shared<RoundFiles>(files_of_round());
  if (!files_->has_place()) {
    asio::post(io_, [this, opened] { finish_opening(*opened); });
    return;
  }
  RoundPlace place{.round = world.round, .keeps_attempt = spec_.gathers, .workers = {}};
  for (int local_rank = 0; local_rank < world.local_world_size; ++local_rank)
    place.workers.push_back(number_of(local_rank));
  const auto open = [files = files_, place = std::move(place), opened] {
    if (Result<void> made = open_files(*files, place, *opened); !made) opened->error = made.error();
  };
  if (files_->is_in_memory()) {  // starting a thread would take longer
    open();
    asio::post(io_, [this, opened] { finish_opening(*opened); });
    return;
  }
  log_writer_.run(open, [this, opened](bool has_run) {
    if (has_run) return finish_opening(*opened);
    RoundFiles none;  // the thread may still write to the others
    none.error = Error{ErrorCode::System, "gave up on the log directory"};
    finish_opening(none);
  });
}

void Output::note_ranks() {
  const RoundRanks now{
      .first_round = world_.round, .base_rank = world_.base_rank, .count = world_.local_world_size};
  if (!ranks_.empty() && ranks_.back().base_rank == now.base_rank &&
      ranks_.back().count == now.count)
    return;
  if (ranks_.size() >= kMostRoundRanks) ranks_.pop_front();
  ranks_.push_back(now);
}

void Output::finish_opening(RoundFiles& opened) {
  if (!on_open_) return;
  const Opened on_open = std::exchange(on_open_, nullptr);
  if (is_given_up_ && !opened.error) opened.error = Error{ErrorCode::System, "gave up on output"};
  if (opened.error) return on_open(*opened.error);
  on_open(open_streams(opened));
}

void Output::close_worker_ends() {
  worker_ends_.clear();
  for (UniqueFd& file : worker_files_) log_writer_.close(std::move(file));
  worker_files_.clear();
}

void Output::drain(std::chrono::milliseconds at_most, std::function<void()> on_drained,
                   Until until) {
  drains_until_ = until;
  assert(!on_drained_ && "one drain at a time");
  on_drained_ = std::move(on_drained);
  close_worker_ends();
  patience_.expires_after(at_most);
  patience_.async_wait([this](const error_code& ec) {
    if (ec || !on_drained_) return;
    // Expired just before it was canceled, in an earlier round.
    if (patience_.expiry() > asio::steady_timer::clock_type::now()) return;
    take_last();
  });
  if (log_writer_.is_stuck()) note_stuck_log_directory();
  asio::post(io_, [this] { check_drained(); });
}

void Output::note_stuck_log_directory() {
  if (on_drained_ && drains_until_ == Until::WrittenOrStuck) {
    is_log_given_up_ = true;
    log_.warning("log files are incomplete: gave up on the log directory path=" + files_->place());
    log_writer_.abandon();
  }
  check_drained();
}

// All workers have exited; another process still holds a pipe.
void Output::take_last() {
  std::size_t held = 0;
  for_each_stream([&held](WorkerStream& stream) {
    stream.take_now();
    if (!stream.is_closed()) ++held;
    stream.close();
  });
  if (held > 0)
    log_.debug("closed pipes that processes of the workers still hold count=" +
               std::to_string(held));
}

void Output::check_drained() {
  if (!on_drained_) return;
  const bool have_sinks_room =
      drains_until_ == Until::Queued
          ? !is_console_congested() && (!log_writer_.is_congested() || log_writer_.is_stuck())
          : is_flushed();
  bool is_done =
      have_sinks_room && (!gathered_ || gathered_->is_empty()) && (!link_ || link_->is_idle());
  for_each_stream([&is_done](WorkerStream&) { is_done = false; });
  if (!is_done) return;
  patience_.cancel();
  asio::post(io_, std::exchange(on_drained_, nullptr));
}

WorkerStream* Output::stderr_of(int local_rank) const {
  const auto index = static_cast<std::size_t>(local_rank);
  return index < workers_.size() ? workers_[index].streams[1].get() : nullptr;
}

std::optional<std::vector<std::string>> Output::stderr_tail(int local_rank) {
  WorkerStream* const stream = stderr_of(local_rank);
  if (stream == nullptr) return std::nullopt;
  stream->take_now();
  return last_lines(stream->tail());
}

std::string Output::error_before_tail(int local_rank) const {
  const WorkerStream* const stream = stderr_of(local_rank);
  return stream == nullptr ? "" : stream->last_error().before(kTailLines, wall_now());
}

std::optional<WatchdogLines::Timeout> Output::reported_timeout(int local_rank) const {
  const WorkerStream* const stream = stderr_of(local_rank);
  return stream == nullptr ? std::nullopt : stream->watchdog_lines().first_timeout();
}

std::optional<std::uint64_t> Output::printed(int local_rank) {
  const auto index = static_cast<std::size_t>(local_rank);
  if (index >= workers_.size()) return std::nullopt;
  const Worker& worker = workers_[index];
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < worker.streams.size(); ++i) {
    if (const WorkerStream* stream = worker.streams[i].get(); stream != nullptr) {
      if (stream->is_held_up()) ++looks_at_congestion_;
      bytes += stream->printed_bytes();
    } else if (worker.files[i]) {
      bytes += size_of(worker.files[i]);
    } else {
      return std::nullopt;
    }
  }
  return bytes + looks_at_congestion_;
}

bool Output::writes_to_file(int local_rank) const {
  const auto index = static_cast<std::size_t>(local_rank);
  return index < workers_.size() && (workers_[index].files[0] || workers_[index].files[1]);
}

void Output::note_print(int local_rank) {
  Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
  if (!std::exchange(worker.has_printed, true) && on_first_print_) on_first_print_(local_rank);
}

// The size as of the previous call. Requests it again for the next one.
std::uint64_t Output::size_of(const std::shared_ptr<WatchedFile>& file) {
  if (std::exchange(file->is_asked_for, true)) {
    ++looks_at_congestion_;  // no answer: a worker that writes to it is blocked too
    return file->size_bytes;
  }
  auto size_bytes = std::make_shared<std::optional<std::uint64_t>>();
  log_writer_.run(
      [path = file->path, size_bytes] {
        struct stat about {};
        if (::stat(path.c_str(), &about) == 0)
          *size_bytes = static_cast<std::uint64_t>(about.st_size);
      },
      [file, size_bytes](bool has_run) {
        file->is_asked_for = false;
        if (has_run && *size_bytes) file->size_bytes = **size_bytes;
      });
  return file->size_bytes;
}

void Output::say(std::string_view line) {
  if (own_lines_) return own_lines_->say(line);
  write_all(fds_.err, std::string(line) + "\n");
}

void Output::send_to_launcher(std::string_view control) {
  if (!channel_ || channel_->is_gone()) return;
  channel_->queue().put_between_lines(to_frame(FrameType::Control, control));
  channel_->flush();
}

bool Output::is_held_up() const { return is_console_congested() || log_writer_.is_congested(); }

bool Output::is_console_congested() const {
  return (out_ && out_->is_congested()) || (err_ && err_->is_congested());
}

bool Output::is_flushed() const {
  return (!out_ || out_->is_empty() || out_->is_gone()) &&
         (!err_ || err_->is_empty() || err_->is_gone()) && log_writer_.is_idle();
}

void Output::finish(const std::optional<FileWriter::Time>& deadline) {
  for (Console* console : {out_.get(), err_.get()}) {
    if (console == nullptr || console->is_gone() || !console->is_terminal()) continue;
    console->queue().end_line();
    console->flush();
  }
  run_until(
      io_, [this] { return is_flushed(); }, deadline);
  if (!is_flushed()) stop();
  // Removing files from a file system that hangs would hang, too.
  const bool can_remove = !(is_given_up_ || is_log_given_up_) || files_->is_in_memory();
  if (!keeps_files() && can_remove) files_->remove();
}

void Output::stop() {
  is_given_up_ = true;
  if (link_) link_->give_up();
  for_each_stream([](WorkerStream& stream) { stream.close(); });
  close_worker_ends();
  patience_.cancel();
  if (out_) out_->stop();
  if (err_) err_->stop();
  log_writer_.abandon();
  check_drained();
}

// --- The setup of a worker's streams

namespace {

// All pipes of an unprivileged user share 64 MiB (pipe-user-pages-soft). Beyond that, every new
// pipe, also of other programs, is a single page. The whole agent therefore uses at most an eighth.
constexpr std::size_t kAllPipesBytes = std::size_t{8} << 20;
constexpr std::size_t kLargestPipeBytes = std::size_t{1} << 20;

}  // namespace

// The files that the round needs.
Output::RoundFiles Output::files_of_round() const {
  RoundFiles files;
  for (const Stream stream : kStreams) {
    const auto& filters =
        stream == Stream::Stdout ? spec_.duplicate_stdout_filters : spec_.duplicate_stderr_filters;
    if (!filters.empty())
      files.filtered[index_of(stream)].path = files_->filtered_path(world_.round, stream);
  }
  for (int local_rank = 0; local_rank < world_.local_world_size; ++local_rank) {
    auto& of_worker = files.streams.emplace_back();
    for (const Stream stream : kStreams) {
      if (plan_of(local_rank, stream).to_file && !trip_)
        of_worker[index_of(stream)].path =
            files_->stream_path(world_.round, number_of(local_rank), stream);
    }
  }
  return files;
}

std::vector<WorkerLogs> Output::worker_logs(int round) const {
  std::vector<WorkerLogs> logs;
  if (round != world_.round || on_open_) return logs;
  const RoundFiles files = files_of_round();
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const auto& [out, err] = files.streams[i];
    logs.push_back({.stdout_file = out.path,
                    .stderr_file = err.path,
                    .label = label_of(spec_, origin_of(static_cast<int>(i), Stream::Stdout))});
  }
  return logs;
}

std::optional<RankLog> Output::rank_log(const RankRound& of, bool is_stderr) const {
  const Stream stream = is_stderr ? Stream::Stderr : Stream::Stdout;
  const auto ranks = std::find_if(ranks_.rbegin(), ranks_.rend(), [&of](const RoundRanks& each) {
    return each.first_round <= of.round;
  });
  const int local_rank = ranks == ranks_.rend() ? -1 : of.rank - ranks->base_rank;
  if (local_rank >= 0 && local_rank < ranks->count) {
    if (trip_ || !plan_of(local_rank, stream).to_file) return std::nullopt;
    LineOrigin origin = origin_of(local_rank, stream);
    origin.rank = of.rank;
    return RankLog{
        .path = files_->stream_path(of.round, spec_.gathers ? of.rank : local_rank, stream),
        .label = label_of(spec_, origin)};
  }
  if (!gathered_ || !files_->has_place()) return std::nullopt;
  return RankLog{.path = files_->stream_path(of.round, of.rank, stream),
                 .label = "[" + std::to_string(of.rank) + "]: "};
}

// Runs in the log directory's thread.
Result<void> Output::open_files(LogFiles& files, const RoundPlace& place, RoundFiles& opened) {
  const auto create = [](RoundFiles::File& file) -> Result<void> {
    if (file.path.empty()) return {};
    Result<UniqueFd> created = create_log(file.path);
    if (!created) return created.error();
    file.fd = *std::move(created);
    return {};
  };
  Result<void> made =
      place.keeps_attempt ? files.reach_attempt(place.round) : files.make_attempt(place.round);
  for (std::size_t i = 0; made && i < opened.filtered.size(); ++i)
    made = create(opened.filtered[i]);
  for (std::size_t i = 0; made && i < opened.streams.size(); ++i) {
    made = files.make_worker_directory(place.round, place.workers[i]);
    if (made) made = create(opened.streams[i][0]);
    if (made) made = create(opened.streams[i][1]);
  }
  return made;
}

Result<std::vector<WorkerStreams>> Output::open_streams(RoundFiles& opened) {
  for (std::size_t i = 0; i < filtered_.size(); ++i) {
    RoundFiles::File& file = opened.filtered[i];
    if (file.fd) filtered_[i] = log_writer_.adopt(std::move(file.fd), std::move(file.path));
  }
  std::vector<WorkerStreams> streams;
  for (int local_rank = 0; local_rank < world_.local_world_size; ++local_rank) {
    Result<WorkerStreams> made =
        open_worker(local_rank, opened.streams[static_cast<std::size_t>(local_rank)]);
    if (!made) return made.error();
    streams.push_back(*std::move(made));
  }
  return streams;
}

Result<WorkerStreams> Output::open_worker(int local_rank, std::array<RoundFiles::File, 2>& files) {
  Worker& worker = workers_[static_cast<std::size_t>(local_rank)];
  const Result<int> out = open_stream(local_rank, Stream::Stdout, std::move(files[0]), worker);
  if (!out) return out.error();
  const Result<int> err = open_stream(local_rank, Stream::Stderr, std::move(files[1]), worker);
  if (!err) return err.error();
  return WorkerStreams{.stdout_fd = *out,
                       .stderr_fd = *err,
                       .error_file = files_->error_path(world_.round, number_of(local_rank)),
                       .stderr_file = worker.stderr_file};
}

StreamPlan Output::plan_of(int local_rank, Stream stream) const {
  const auto index = static_cast<std::size_t>(local_rank);
  StreamPlan plan;
  plan.is_labeled = spec_.mode == OutputMode::Labeled;
  if (index < spec_.streams.size()) plan = spec_.streams[index][index_of(stream)];
  if (!files_->has_place() && !trip_) plan.to_file = false;
  return plan;
}

Result<int> Output::open_stream(int local_rank, Stream stream, RoundFiles::File file,
                                Worker& worker) {
  const StreamPlan plan = plan_of(local_rank, stream);
  if (file.fd) {
    keeps_streams_ = true;
    if (stream == Stream::Stderr) worker.stderr_file = file.path;
  }
  if (file.fd && !plan.to_console) {
    worker.files[index_of(stream)] =
        std::make_shared<WatchedFile>(WatchedFile{.path = std::move(file.path)});
    worker_files_.push_back(std::move(file.fd));
    return worker_files_.back().get();
  }
  if (!plan.to_console && !plan.to_file) return open_null();
  if (spec_.mode == OutputMode::Raw && !plan.to_file)
    return stream == Stream::Stdout ? fds_.out : fds_.err;
  return open_pipe(local_rank, stream, std::move(file), worker);
}

Result<int> Output::open_null() {
  UniqueFd fd(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!fd) return system_error("open /dev/null", errno);
  return hand_out(std::move(fd));
}

Result<int> Output::open_pipe(int local_rank, Stream stream, RoundFiles::File tee, Worker& worker) {
  Result<Pipe> pipe = make_pipe(pipe_bytes());
  if (!pipe) return pipe.error();
  const StreamPlan plan = plan_of(local_rank, stream);
  const LineOrigin origin = origin_of(local_rank, stream);
  WorkerStream::Setup setup{.number = ++streams_made_,
                            .form = form_of(spec_, origin, plan.is_labeled),
                            .is_stderr = stream == Stream::Stderr,
                            .shows_prompts = prompting_ == StdinSource::Inherited ||
                                             (prompting_ == StdinSource::Rank0 && local_rank == 0),
                            .tee = nullptr,
                            .filter = std::nullopt,
                            .filtered = nullptr,
                            .link = trip_ ? &*link_ : nullptr,
                            .trip = trip_.value_or(0),
                            .lines = {.round = world_.round,
                                      .local_rank = local_rank,
                                      .is_stderr = stream == Stream::Stderr,
                                      .is_shown = plan.to_console,
                                      .is_labeled = plan.is_labeled,
                                      .is_kept = plan.to_file}};
  setup.on_first_bytes = [this, local_rank] { note_print(local_rank); };
  if (tee.fd) setup.tee = log_writer_.adopt(std::move(tee.fd), std::move(tee.path));
  if (setup.tee && filtered_[index_of(stream)]) {
    setup.filtered = filtered_[index_of(stream)];
    setup.filter.emplace(
        stream == Stream::Stdout ? spec_.duplicate_stdout_filters : spec_.duplicate_stderr_filters,
        label_of(spec_, origin));
  }
  auto& made = worker.streams[index_of(stream)];
  made =
      std::make_unique<WorkerStream>(io_, std::span(buffer_.get(), kReadBytes), console_of(stream),
                                     log_writer_, std::move(setup), [this] { check_drained(); });
  if (const Result<void> started = made->start(std::move(pipe->read_end)); !started)
    return started.error();
  return hand_out(std::move(pipe->write_end));
}

std::size_t Output::pipe_bytes() const {
  const std::size_t pipes = 2 * std::max<std::size_t>(1, workers_.size());
  return std::clamp(kAllPipesBytes / pipes, kDefaultPipeBytes, kLargestPipeBytes);
}

LineOrigin Output::origin_of(int local_rank, Stream stream) const {
  return {.node_rank = world_.node_rank,
          .host = host_,
          .rank = world_.base_rank + local_rank,
          .local_rank = local_rank,
          .role = role_of(world_, local_rank).name,
          .round = world_.round,
          .is_stderr = stream == Stream::Stderr};
}

int Output::hand_out(UniqueFd fd) {
  worker_ends_.push_back(std::move(fd));
  return worker_ends_.back().get();
}

}  // namespace drun::agent

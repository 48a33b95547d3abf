#include "agent/output/output.h"

#include <sys/stat.h>

#include <cassert>
#include <csignal>
#include <cstdint>
#include <utility>

#include "agent/output/output_impl.h"

namespace drun::agent {

Result<void> Output::Impl::prepare(std::string_view run_id) {
  assert(!out_);
  std::signal(SIGPIPE, SIG_IGN);
  open_consoles();
  own_lines_.emplace(err(), log_, ++streams_made_);
  if (spec_.gathers) open_gathering();
  return files_->make(spec_.log_dir, run_id, holds_streams());
}

void Output::Impl::open_consoles() {
  if (spec_.channel_fd) {
    channel_ = make_console(*spec_.channel_fd, "the channel to the starter");
    channel_->as_channel();
    out_ = std::make_unique<Console>(*channel_, FrameType::Out);
    err_ = std::make_unique<Console>(*channel_, FrameType::Err);
    return;
  }
  out_ = make_console(fds_.out, "stdout");
  if (!is_same_file(fds_.out, fds_.err)) err_ = make_console(fds_.err, "stderr");
}

bool Output::Impl::holds_streams() const {
  for (const auto& streams : spec_.streams)
    for (const StreamPlan& plan : streams)
      if (plan.to_file) return true;
  return false;
}

std::unique_ptr<Console> Output::Impl::make_console(int fd, std::string name) {
  return std::make_unique<Console>(io_, log_, fd, std::move(name),
                                   Console::Listener{.on_room = [this] { wake_all(); },
                                                     .on_empty = [this] { check_drained(); }});
}

void Output::Impl::open_gathering() {
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

rendezvous::LineTaker* Output::Impl::line_taker(
    std::function<void(std::uint64_t, std::size_t)> on_taken) {
  on_taken_ = std::move(on_taken);
  return gathered_.get();
}

// The coordinator is lost, or its connection: what it may not have shown is shown here.
void Output::Impl::take_back(const std::vector<rendezvous::Lines>& lines) {
  for (const rendezvous::Lines& each : lines) {
    const auto local_rank = static_cast<std::size_t>(each.local_rank);
    if (each.round != world_.round || local_rank >= workers_.size()) continue;
    const auto& stream = workers_[local_rank].streams[each.is_stderr ? 1 : 0];
    if (stream) stream->take_back(each);
  }
  for_each_stream([](WorkerStream& stream) { stream.leave_link(); });
}

void Output::Impl::wake_all() {
  for_each_stream([](WorkerStream& stream) { stream.wake(); });
  if (gathered_) gathered_->wake();
  if (to_stdout_) to_stdout_->wake();
  if (own_lines_) own_lines_->note_room();
  check_drained();
}

void Output::Impl::open_round(const World& world, Opened on_open) {
  assert(out_ && "prepare() comes first");
  assert(!on_open_ && "one round at a time");
  for_each_stream([](WorkerStream& stream) { stream.close(); });
  workers_.clear();
  close_worker_ends();
  filtered_ = {};
  world_ = world;
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
  log_writer_.run(
      [files = files_, place = std::move(place), opened] {
        if (Result<void> made = open_files(*files, place, *opened); !made)
          opened->error = made.error();
      },
      [this, opened](bool has_run) {
        if (!has_run) opened->error = Error{ErrorCode::System, "gave up on the log directory"};
        finish_opening(*opened);
      });
}

void Output::Impl::finish_opening(RoundFiles& opened) {
  if (!on_open_) return;
  const Opened on_open = std::exchange(on_open_, nullptr);
  if (is_given_up_ && !opened.error) opened.error = Error{ErrorCode::System, "gave up on output"};
  if (opened.error) return on_open(*opened.error);
  on_open(open_streams(opened));
}

void Output::Impl::drain(std::chrono::milliseconds at_most, std::function<void()> on_drained,
                         Until until) {
  drains_until_ = until;
  assert(!on_drained_ && "one drain at a time");
  on_drained_ = std::move(on_drained);
  close_worker_ends();
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
    log_.debug("closed pipes that processes of the workers still hold count=" +
               std::to_string(held));
}

void Output::Impl::check_drained() {
  if (!on_drained_) return;
  const bool have_sinks_room = drains_until_ == Until::Written ? is_flushed() : !is_held_up();
  bool is_done =
      have_sinks_room && (!gathered_ || gathered_->is_empty()) && (!link_ || link_->is_idle());
  for_each_stream([&is_done](WorkerStream&) { is_done = false; });
  if (!is_done) return;
  patience_.cancel();
  asio::post(io_, std::exchange(on_drained_, nullptr));
}

std::optional<std::vector<std::string>> Output::Impl::stderr_tail(int local_rank) {
  const auto index = static_cast<std::size_t>(local_rank);
  if (local_rank < 0 || index >= workers_.size()) return std::nullopt;
  WorkerStream* stream = workers_[index].streams[1].get();
  if (stream == nullptr) return std::nullopt;
  stream->take_now();
  return last_lines(stream->tail());
}

std::optional<std::uint64_t> Output::Impl::printed(int local_rank) {
  const auto index = static_cast<std::size_t>(local_rank);
  if (local_rank < 0 || index >= workers_.size()) return std::nullopt;
  const Worker& worker = workers_[index];
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < worker.streams.size(); ++i) {
    if (const WorkerStream* stream = worker.streams[i].get(); stream != nullptr) {
      if (stream->is_held_up()) ++looks_at_congestion_;
      bytes += stream->taken_bytes();
    } else if (worker.files[i]) {
      bytes += size_of(worker.files[i]);
    } else {
      return std::nullopt;
    }
  }
  return bytes + looks_at_congestion_;
}

// As of the last call; asks again for the next one.
std::uint64_t Output::Impl::size_of(const std::shared_ptr<WatchedFile>& file) {
  if (std::exchange(file->is_asked_for, true)) {
    ++looks_at_congestion_;  // no answer: a worker that writes there waits, too
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

void Output::Impl::say(std::string_view line) {
  if (own_lines_) return own_lines_->say(line);
  write_all(fds_.err, std::string(line) + "\n");
}

void Output::Impl::tell_starter(std::string_view control) {
  if (!channel_ || channel_->is_gone()) return;
  channel_->queue().put_between_lines(to_frame(FrameType::Control, control));
  channel_->flush();
}

bool Output::Impl::is_flushed() const {
  return (!out_ || out_->is_empty() || out_->is_gone()) &&
         (!err_ || err_->is_empty() || err_->is_gone()) && log_writer_.is_idle();
}

void Output::Impl::finish(std::optional<std::chrono::milliseconds> at_most) {
  for (Console* console : {out_.get(), err_.get()}) {
    if (console == nullptr || console->is_gone() || !console->is_terminal()) continue;
    console->queue().end_line();
    console->flush();
  }
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + at_most.value_or(std::chrono::hours(0));
  while (!is_flushed() && (!at_most || Clock::now() < deadline)) {
    if (io_.stopped()) io_.restart();
    at_most ? io_.run_one_until(deadline) : io_.run_one();
  }
  if (!is_flushed()) stop();
  const bool keeps_files = keeps_streams_ || (gathered_ && gathered_->has_files());
  if (files_->is_temporary() && !keeps_files && !is_given_up_) files_->remove();
}

void Output::Impl::stop() {
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

Output::Output(asio::io_context& io, Log log, OutputSpec spec, std::string host, ConsoleFds console)
    : impl_(std::make_unique<Impl>(io, std::move(log), std::move(spec), std::move(host), console)) {
}
Output::~Output() = default;

Result<void> Output::prepare(std::string_view run_id) { return impl_->prepare(run_id); }
void Output::open_round(const World& world, Opened on_open) {
  impl_->open_round(world, std::move(on_open));
}
void Output::close_worker_ends() { impl_->close_worker_ends(); }
void Output::drain(std::chrono::milliseconds at_most, std::function<void()> on_drained,
                   Until until) {
  impl_->drain(at_most, std::move(on_drained), until);
}
std::optional<std::vector<std::string>> Output::stderr_tail(int local_rank) {
  return impl_->stderr_tail(local_rank);
}
void Output::run_off_loop(std::function<void()> job, std::function<void(bool)> done) {
  impl_->run_off_loop(std::move(job), std::move(done));
}
std::optional<std::uint64_t> Output::printed(int local_rank) { return impl_->printed(local_rank); }
rendezvous::LineTaker* Output::line_taker(
    std::function<void(std::uint64_t, std::size_t)> on_taken) {
  return impl_->line_taker(std::move(on_taken));
}
bool Output::is_held_up() const { return impl_->is_held_up(); }
rendezvous::Client::LineListener* Output::line_listener() { return impl_->line_listener(); }
void Output::say(std::string_view line) { impl_->say(line); }
void Output::tell_starter(std::string_view control) { impl_->tell_starter(control); }
std::string Output::unfinished_frame() const { return impl_->unfinished_frame(); }
std::string Output::log_place() const { return impl_->log_place(); }
void Output::draw(std::string_view bytes) { impl_->draw(bytes); }
void Output::finish(std::optional<std::chrono::milliseconds> at_most) { impl_->finish(at_most); }
void Output::stop() { impl_->stop(); }

}  // namespace drun::agent

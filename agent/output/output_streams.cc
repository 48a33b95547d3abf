// A worker's streams: what each of them is, and where it leads.
#include <fcntl.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <utility>

#include "agent/output/output_impl.h"
#include "agent/output/pipe_reader.h"

namespace drun::agent {
namespace {

// Pipes of a user without privileges share 64 MiB (pipe-user-pages-soft); beyond it every new pipe,
// also of other programs, is a single page. So the whole agent asks for an eighth at most.
constexpr std::size_t kAllPipesBytes = std::size_t{8} << 20;
constexpr std::size_t kLargestPipeBytes = std::size_t{1} << 20;

}  // namespace

// Which there are to be.
Output::Impl::RoundFiles Output::Impl::files_of_round() const {
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

// In the log directory's thread.
Result<void> Output::Impl::open_files(LogFiles& files, const RoundPlace& place,
                                      RoundFiles& opened) {
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

Result<std::vector<WorkerStreams>> Output::Impl::open_streams(RoundFiles& opened) {
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

Result<WorkerStreams> Output::Impl::open_worker(int local_rank,
                                                std::array<RoundFiles::File, 2>& files) {
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

StreamPlan Output::Impl::plan_of(int local_rank, Stream stream) const {
  const auto index = static_cast<std::size_t>(local_rank);
  StreamPlan plan;
  plan.is_labelled = spec_.mode == OutputMode::Labelled;
  if (index < spec_.streams.size()) plan = spec_.streams[index][index_of(stream)];
  if (!files_->has_place() && !trip_) plan.to_file = false;
  return plan;
}

Result<int> Output::Impl::open_stream(int local_rank, Stream stream, RoundFiles::File file,
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

Result<int> Output::Impl::open_null() {
  UniqueFd fd(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!fd) return system_error("open /dev/null", errno);
  return hand_out(std::move(fd));
}

Result<int> Output::Impl::open_pipe(int local_rank, Stream stream, RoundFiles::File tee,
                                    Worker& worker) {
  Result<Pipe> pipe = make_pipe(pipe_bytes());
  if (!pipe) return pipe.error();
  const StreamPlan plan = plan_of(local_rank, stream);
  const LineOrigin origin = origin_of(local_rank, stream);
  WorkerStream::Setup setup{.number = ++streams_made_,
                            .form = form_of(spec_, origin, plan.is_labelled),
                            .keeps_tail = stream == Stream::Stderr,
                            .tee = nullptr,
                            .filter = std::nullopt,
                            .filtered = nullptr,
                            .link = trip_ ? &*link_ : nullptr,
                            .trip = trip_.value_or(0),
                            .lines = {.round = world_.round,
                                      .local_rank = local_rank,
                                      .is_stderr = stream == Stream::Stderr,
                                      .is_shown = plan.to_console,
                                      .is_labelled = plan.is_labelled,
                                      .is_kept = plan.to_file}};
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

std::size_t Output::Impl::pipe_bytes() const {
  const std::size_t pipes = 2 * std::max<std::size_t>(1, workers_.size());
  return std::clamp(kAllPipesBytes / pipes, kDefaultPipeBytes, kLargestPipeBytes);
}

LineOrigin Output::Impl::origin_of(int local_rank, Stream stream) const {
  return {.node_rank = world_.node_rank,
          .host = host_,
          .rank = world_.base_rank + local_rank,
          .local_rank = local_rank,
          .role = role_of(world_, local_rank).name,
          .round = world_.round,
          .is_stderr = stream == Stream::Stderr};
}

int Output::Impl::hand_out(UniqueFd fd) {
  worker_ends_.push_back(std::move(fd));
  return worker_ends_.back().get();
}

}  // namespace drun::agent

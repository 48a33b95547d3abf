#include "agent/workers/round_commands.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "agent/preload/protocol.h"
#include "agent/workers/worker_command.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/tls/secret.h"

namespace drun::agent {
namespace {

// Returns an errno, or 0.
int write_key(const std::string& path, const std::string& key) {
  const UniqueFd fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return errno;
  const ssize_t count = ::write(fd.get(), key.data(), key.size());
  if (count < 0) return errno;
  return static_cast<std::size_t>(count) == key.size() ? 0 : ENOSPC;
}

}  // namespace

Result<void> WorkerKeyFile::prepare(const JoinSpec& join, int round) {
  directory_.clear();
  path_.clear();
  if (!join.secret) return {};
  Result<std::string> derived = worker_key(*join.secret, join.run_id, round);
  if (!derived)
    return with_context(derived.error(), "cannot derive the worker key from the secret");
  std::string& key = *derived;
  const Result<void> written = write(key, round);
  wipe(key);
  return written;
}

Result<void> WorkerKeyFile::write(const std::string& key, int round) {
  if (Result<void> made = directory_.make(); !made) return made;
  const std::string path = directory_.path() + "/" + std::to_string(round);
  const int error = write_key(path, key);
  if (is_out_of_room(error) && directory_.move_to_disk()) return write(key, round);
  if (error != 0) return system_error("write the worker key to " + path, error);
  path_ = path;
  return {};
}

Result<std::vector<Command>> RoundCommands::make(const World& world,
                                                 const std::vector<WorkerStreams>& streams) {
  // Probes have no placement, to which commands would point.
  const WorkerSpec probe = world.is_preflight ? probe_of(spec_) : WorkerSpec();
  const WorkerSpec& worker = world.is_preflight ? probe : spec_.worker;
  std::vector<Command> commands;
  commands.reserve(streams.size());
  if (Result<void> made = key_file_.prepare(spec_.join, world.round); !made) return made.error();
  if (!world.is_preflight) sources_.progress.begin_round(world.round, world.local_world_size);
  const WorkerWatch& watch = sources_.watch;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const int local_rank = static_cast<int>(i);
    const Result<int> standard_input =
        sources_.standard_input.open(worker.stdin_source, world, local_rank);
    if (!standard_input) return standard_input.error();
    commands.push_back(Command{
        .argv = wrapped_argv(worker, world, local_rank),
        .inherited = inherited_,
        .environment = own_environment(worker, world, local_rank, streams[i].error_file,
                                       {.heartbeat_file = watch.heartbeat_file(i),
                                        .ras_address = watch.ras_address(),
                                        .progress_file = sources_.progress.file(i),
                                        .key_file = key_file_.path(),
                                        .flight_recorder = watch.flight_environment(local_rank)}),
        .stdin_fd = *standard_input,
        .stdout_fd = streams[i].stdout_fd,
        .stderr_fd = streams[i].stderr_fd,
        .descriptor_limit = users_limit_,
        .placement = placement_of(worker, local_rank),
    });
  }
  return commands;
}

std::optional<PreloaderSpec> RoundCommands::preloader() const {
  const WorkerSpec& worker = spec_.worker;
  const auto program = preload::python_program(worker_argv(worker, 0));
  if (worker.preload.modules.empty() || !program) return std::nullopt;
  std::vector<EnvironmentEntry> environment;
  if (const ProgramSpec* first = program_of(worker, 0)) environment = first->environment;
  const WorkerPlacement* place = placement_of(worker, 0);
  if (place != nullptr && place->omp_threads)
    environment.emplace_back("OMP_NUM_THREADS", std::to_string(*place->omp_threads));
  return PreloaderSpec{.preload = worker.preload,
                       .start = {.program = *program, .environment = environment},
                       .inherited = inherited_,
                       .descriptor_limit = users_limit_};
}

}  // namespace drun::agent

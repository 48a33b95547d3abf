// edge. The preloaded interpreter of this node: starts it, lets it import the modules, and has it
// fork workers (interpreter.py; docs/guide/preload.md).
//
//   Starting -> Importing -> Ready -> Forking -> Ready ...
//   import fails, hangs, or the process dies meanwhile   Failed: the next round tries it again
//   a fork would not be safe, or it died too often       Off: every worker is started as usual
//   it dies while Ready or Forking                       Starting
//   a fork is canceled and does not end in time          Failed
//
// Workers that the interpreter cannot start are started in the usual way, and the reason is logged
// once. Output of the modules is logged. The interpreter ends with this process: by its
// parent-death signal, and when its socket closes.
//
// Owner:   Agent; outlives the io_context's run. Keeps the io_context running until stop(), and
//          until the process is reaped after that.
// Thread:  the io_context's only.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "agent/preload/protocol.h"
#include "agent/process/process.h"
#include "agent/spawn/program_starter.h"
#include "agent/spawn/worker_starter.h"
#include "agent/spec.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/net/deadline_timer.h"

namespace drun::agent {

struct PreloaderSpec {
  PreloadSpec preload;
  preload::Start start;
  std::vector<std::string> inherited;               // "NAME=value" lines, as in Command
  std::optional<std::uint64_t> descriptor_limit{};  // as the workers'
};

class Preloader final : public WarmStarter {
 public:
  struct Listener {
    virtual ~Listener() = default;
    // The interpreter's process exists. It is a child of this process and not a worker.
    virtual void on_interpreter_begun(int pid) = 0;
    virtual void on_interpreter_reaped() = 0;
  };

  Preloader(asio::io_context& io, Log log, PreloaderSpec spec, Listener& listener);
  Preloader(const Preloader&) = delete;
  Preloader& operator=(const Preloader&) = delete;

  // Starts the interpreter, unless it runs or is off.
  void start();

  // Calls `then` from the io_context when the imports are done: with an error if one failed or took
  // too long; with success also if workers are to be started in the usual way. One call at a time.
  // True: the imports are not done yet.
  bool when_imported(std::function<void(Result<void>)> then);
  // Ends the wait for the imports with success.
  void stop_waiting() { settle(Result<void>()); }

  // Kills the interpreter. It starts no more workers.
  void stop();

  bool start(const Command& command, int local_rank, OnBegun on_begun) override;
  void cancel(std::chrono::milliseconds grace) override;

 private:
  enum class State { Idle, Starting, Importing, Ready, Forking, Failed, Off };

  void on_begun(const std::variant<Spawned, Refusal>& result);
  void on_end(const ExitStatus& status);
  void read_control();
  void handle(const preload::Message& message);
  void on_forked(int pid);
  void answer(std::optional<Spawner::Begun> begun);
  void read_output();
  void log_lines(bool is_last);
  void log_printed();
  void fail(const std::string& what);
  void turn_off(const std::string& reason);
  void settle(const Result<void>& result);
  void kill_if_forking();
  void kill();
  void close_all();
  void report_plain(int local_rank, const std::string& reason);
  std::string modules() const;
  std::string not_begun(const Refusal& refusal) const;
  int pid() const { return process_ && process_->is_running() ? process_->pid() : 0; }  // 0: none
  bool is_importing() const { return state_ == State::Starting || state_ == State::Importing; }

  asio::io_context& io_;
  const Log log_;
  const PreloaderSpec spec_;
  Listener& listener_;
  ProgramStarter starter_;
  std::unique_ptr<ProgramStart> program_;
  std::unique_ptr<Process> process_;
  asio::posix::stream_descriptor control_;
  asio::posix::stream_descriptor output_;
  rendezvous::DeadlineTimer timer_;
  State state_ = State::Idle;
  bool is_stopped_ = false;
  bool is_canceled_ = false;  // the fork that is pending
  int deaths_ = 0;
  std::optional<Error> failure_;
  std::function<void(Result<void>)> waiting_;
  OnBegun on_worker_;
  UniqueFd channel_;  // to the worker that is being forked
  std::array<char, 4096> buffer_{};
  std::string line_;  // that is not complete
  std::string tail_;
  std::set<std::string> reasons_;
};

}  // namespace drun::agent

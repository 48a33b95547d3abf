#include "agent/spawn/program_starter.h"

#include <cassert>
#include <deque>
#include <string>
#include <utility>

#include "agent/spawn/child_descriptors.h"

namespace drun::agent {

class ProgramStarter::Impl : public std::enable_shared_from_this<Impl> {
 public:
  struct Program {
    Program(asio::io_context& io, const Command& ordered, std::vector<UniqueFd> owned, OnBegun then)
        : inherited(ordered.inherited.begin(), ordered.inherited.end()),
          command(ordered),
          descriptors(std::move(owned)),
          on_begun(std::move(then)),
          sign(io) {
      assert(command.placement == nullptr);
      command.inherited = inherited;
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    ~Program() {
      if (sign.is_open()) sign.release();  // the descriptor is the start's
    }

    std::vector<std::string> inherited;
    Command command;
    std::vector<UniqueFd> descriptors;  // until it has begun
    OnBegun on_begun;                   // null: forgotten
    std::unique_ptr<Start> start;
    asio::posix::stream_descriptor sign;
    std::optional<Refusal> refusal;
  };
  using ProgramPtr = std::shared_ptr<Program>;

  Impl(asio::io_context& io, std::size_t most_at_once) : io_(io), descriptors_(most_at_once) {}

  ProgramPtr add(const Command& command, std::vector<UniqueFd> descriptors, OnBegun on_begun) {
    waiting_.push_back(
        std::make_shared<Program>(io_, command, std::move(descriptors), std::move(on_begun)));
    const ProgramPtr program = waiting_.back();
    if (!spawner_) spawner_.emplace(descriptors_);
    begin_soon();
    return program;
  }

  void forget(const ProgramPtr& program) {
    program->on_begun = nullptr;
    std::erase(waiting_, program);
  }

  std::optional<Refusal> ended(const ProgramPtr& program) {
    if (program->start) {
      program->start->ended();
      settle(program);
    }
    return program->refusal;
  }

  void stop() {
    waiting_.clear();
    for (const ProgramPtr& program : std::exchange(starting_, {})) {
      program->on_begun = nullptr;
      release(*program);
    }
  }

 private:
  // In a turn of the loop for each, as clone takes a moment, too.
  void begin_soon() {
    if (waiting_.empty() || !spawner_->has_room() || std::exchange(is_posted_, true)) return;
    asio::post(io_, [self = shared_from_this()] {
      self->is_posted_ = false;
      if (!self->waiting_.empty() && self->spawner_->has_room()) self->begin_one();
      self->begin_soon();
    });
  }

  void begin_one() {
    const ProgramPtr program = waiting_.front();
    waiting_.pop_front();
    auto result = spawner_->begin(program->command);
    program->descriptors.clear();
    const OnBegun on_begun = std::exchange(program->on_begun, nullptr);
    if (const auto* refusal = std::get_if<Refusal>(&result)) {
      if (on_begun) on_begun(*refusal);
      return;
    }
    auto& begun = std::get<Spawner::Begun>(result);
    if (begun.start) {
      program->start = std::move(begun.start);
      program->sign.assign(program->start->sign());
      starting_.push_back(program);
      watch(program);
    }
    if (on_begun) on_begun(begun.spawned);
  }

  void watch(const ProgramPtr& program) {
    program->sign.async_wait(asio::posix::stream_descriptor::wait_read,
                             [self = shared_from_this(), program](const error_code& ec) {
                               if (ec || !program->start) return;
                               if (!program->start->look()) return self->watch(program);
                               self->settle(program);
                             });
  }

  // Its program is executed, or it will not be.
  void settle(const ProgramPtr& program) {
    program->refusal = program->start->refusal();
    std::erase(starting_, program);
    release(*program);
    begin_soon();
  }

  static void release(Program& program) {
    if (program.sign.is_open()) program.sign.release();
    program.start.reset();
  }

  asio::io_context& io_;
  const ChildDescriptors descriptors_;
  std::optional<Spawner> spawner_;  // from the first start on: it notes which signals we catch
  std::deque<ProgramPtr> waiting_;
  std::vector<ProgramPtr> starting_;
  bool is_posted_ = false;
};

class ProgramStarter::Handle final : public ProgramStart {
 public:
  Handle(std::shared_ptr<Impl> impl, Impl::ProgramPtr program)
      : impl_(std::move(impl)), program_(std::move(program)) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() override { impl_->forget(program_); }

  std::optional<Refusal> ended() override { return impl_->ended(program_); }
  bool is_before_exec() const override { return program_->start != nullptr; }

 private:
  const std::shared_ptr<Impl> impl_;
  const Impl::ProgramPtr program_;
};

ProgramStarter::ProgramStarter(asio::io_context& io, std::size_t most_at_once)
    : impl_(std::make_shared<Impl>(io, most_at_once)) {}

ProgramStarter::~ProgramStarter() { impl_->stop(); }

std::unique_ptr<ProgramStart> ProgramStarter::start(const Command& command,
                                                    std::vector<UniqueFd> descriptors,
                                                    OnBegun on_begun) {
  return std::make_unique<Handle>(impl_,
                                  impl_->add(command, std::move(descriptors), std::move(on_begun)));
}

}  // namespace drun::agent

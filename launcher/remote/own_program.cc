#include "launcher/remote/own_program.h"

#include <pthread.h>
#include <sys/utsname.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "rendezvous/net/openssl_library.h"

namespace drun::hosts {
namespace {

OwnProgram::Copy read_own_program() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  auto copy = std::make_shared<ProgramCopy>();
  copy->bytes.assign(std::istreambuf_iterator<char>(file), {});
  if (!file || copy->bytes.empty())
    return Error{ErrorCode::System, "cannot read /proc/self/exe; see whether /proc is mounted"};
  Result<std::string> hash = sha256_text(copy->bytes);
  if (!hash) return hash.error();
  copy->hash = *std::move(hash);
  return std::shared_ptr<const ProgramCopy>(std::move(copy));
}

}  // namespace

struct OwnProgram::State {
  std::optional<Copy> copy{};
  std::vector<Done> waiting{};

  void finish(const Copy& read) {
    copy = read;
    for (const Done& each : std::exchange(waiting, {})) each(*copy);
  }
};

OwnProgram::OwnProgram(asio::io_context& io) : io_(io), state_(std::make_shared<State>()) {}

OwnProgram::~OwnProgram() {
  if (reader_.joinable()) reader_.join();
}

void OwnProgram::get(Done done) {
  if (state_->copy) {
    asio::post(io_, [state = state_, done = std::move(done)] { done(*state->copy); });
    return;
  }
  state_->waiting.push_back(std::move(done));
  if (state_->waiting.size() > 1) return;
  const auto finish = [this, state = std::weak_ptr(state_)](const Copy& copy) {
    asio::post(io_, [state, copy] {
      if (const auto alive = state.lock()) alive->finish(copy);
    });
  };
  // Block signals in the new thread; the loop's thread handles them.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    reader_ = std::thread([finish] { finish(read_own_program()); });
  } catch (const std::system_error& error) {
    finish(
        Error{ErrorCode::System, "cannot start a thread: " + system_message(error.code().value())});
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

std::string own_machine() {
  utsname name{};
  return ::uname(&name) == 0 ? name.machine : "";
}

}  // namespace drun::hosts

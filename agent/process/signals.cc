#include "agent/process/signals.h"

#include <algorithm>
#include <csignal>
#include <utility>

namespace drun::agent {
namespace {

constexpr std::chrono::milliseconds kSameKeystroke{200};

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

Signals::Signals(asio::io_context& io, std::vector<int> termination_signals, Listener& listener)
    : signals_(io), termination_signals_(std::move(termination_signals)), listener_(listener) {}

void Signals::start() {
  std::signal(SIGPIPE, SIG_IGN);
  std::vector<int> wanted = termination_signals_;
  wanted.insert(wanted.end(), {SIGUSR1, SIGUSR2, SIGCONT});
  for (const int signal : wanted) {
    if (is_ignored(signal)) continue;
    error_code cannot_be_caught;  // SIGKILL in the user's list
    signals_.add(signal, cannot_be_caught);
  }
  wait();
}

void Signals::stop() {
  stopped_ = true;
  signals_.cancel();
}

void Signals::wait() {
  signals_.async_wait([this](error_code ec, int signal) {
    if (ec) return;
    if (stopped_) return;
    handle(signal);
    if (!stopped_) wait();
  });
}

void Signals::handle(int signal) {
  const auto now = std::chrono::steady_clock::now();
  const bool is_termination = std::find(termination_signals_.begin(), termination_signals_.end(),
                                        signal) != termination_signals_.end();
  if (!is_termination) return listener_.on_pass_on(signal);
  if (signal == SIGINT && first_interrupt_ && now - *first_interrupt_ >= kSameKeystroke &&
      !std::exchange(killing_, true))
    return listener_.on_kill_now();
  if (signal == SIGINT && !first_interrupt_) first_interrupt_ = now;
  if (std::exchange(first_, signal)) return;
  listener_.on_terminate(signal);
}

}  // namespace drun::agent

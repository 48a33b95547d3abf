// Starts child processes that are hard to stop, prints their number, and then follows the argument:
//   tree stay | leave | fail     (leave: exit code 0, fail: exit code 3, both at once)
//   tree spawn                  (described below)
// The processes are: itself, a plain child, a child in a new session that ignores SIGTERM, a
// stopped child, and a daemon (forked twice) with a child and a sibling. The daemon and its child
// ignore every signal that they can. That is seven processes. Six remain when it exits.
//
// "spawn" blocks SIGTERM, as shells do while they start a child. When the signal is pending, it
// starts a child, which has not got the signal, and dies of it.
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>

namespace {

void ignore_all() {
  for (int signal = 1; signal < 32; ++signal)
    if (signal != SIGKILL && signal != SIGSTOP && signal != SIGCHLD) std::signal(signal, SIG_IGN);
}

[[noreturn]] void stay() {
  while (true) pause();
}

// The child writes a byte to the pipe `ready` when it is ready.
void child(const std::function<void()>& body) {
  if (fork() != 0) return;
  body();
  _exit(0);
}

[[noreturn]] void spawn_during_signal() {
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  sigprocmask(SIG_BLOCK, &term, nullptr);
  pollfd pending{.fd = signalfd(-1, &term, SFD_CLOEXEC), .events = POLLIN, .revents = 0};
  std::puts("up");
  std::fflush(stdout);
  poll(&pending, 1, -1);  // the signal stays pending
  if (fork() == 0) {
    sigprocmask(SIG_UNBLOCK, &term, nullptr);
    execlp("sleep", "sleep", "1000", nullptr);
  }
  sigprocmask(SIG_UNBLOCK, &term, nullptr);
  _exit(9);
}

}  // namespace

int main(int argc, char** argv) {
  int ready[2];
  if (argc == 2 && std::strcmp(argv[1], "spawn") == 0) spawn_during_signal();
  if (argc != 2 || pipe2(ready, O_CLOEXEC) != 0) return 2;
  const auto be_ready = [&ready] {
    close(ready[0]);
    if (write(ready[1], "r", 1) != 1) _exit(9);
    close(ready[1]);
  };
  child([&] {
    be_ready();
    stay();
  });
  child([&] {
    setsid();
    std::signal(SIGTERM, SIG_IGN);
    be_ready();
    stay();
  });
  child([&] {
    setsid();
    be_ready();
    raise(SIGSTOP);
    stay();
  });
  child([&] {  // the daemons' parent, which exits at once
    setsid();
    child([&] {
      ignore_all();
      child([&] {
        setsid();
        be_ready();
        stay();
      });
      be_ready();
      stay();
    });
    child([&] {
      setpgid(0, 0);
      be_ready();
      stay();
    });
  });
  close(ready[1]);
  char letters[8];
  int members = 1;
  while (members < 7) {
    const ssize_t got = read(ready[0], letters, sizeof letters);
    if (got <= 0) return 9;
    members += static_cast<int>(got);
  }
  std::printf("family of %d\n", members);
  std::fflush(stdout);
  if (std::strcmp(argv[1], "leave") == 0) return 0;
  if (std::strcmp(argv[1], "fail") == 0) return 3;
  stay();
}

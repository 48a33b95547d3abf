// The baseline for launchers: calls posix_spawn COUNT times and waits for all processes.
// usage: spawn_wait COUNT PROGRAM [ARGS...]

#include <spawn.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>

extern char** environ;

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int count = std::atoi(argv[1]);
  for (int i = 0; i < count; ++i) {
    pid_t pid = 0;
    if (posix_spawnp(&pid, argv[2], nullptr, nullptr, argv + 2, environ) != 0) {
      std::perror(argv[2]);
      return 1;
    }
  }
  int failed = 0;
  for (int i = 0; i < count; ++i) {
    int status = 0;
    if (wait(&status) < 0 || status != 0) ++failed;
  }
  return failed == 0 ? 0 : 1;
}

// refuse affinity|memory PROGRAM [ARGUMENT...]: runs PROGRAM with a kernel filter that refuses to
// bind processes to CPUs, or their memory to nodes, as in containers without the permission. Exits
// with 77 if it cannot install the filter.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string_view>

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const bool is_affinity = std::string_view(argv[1]) == "affinity";
  const unsigned int refused = is_affinity ? SYS_sched_setaffinity : SYS_set_mempolicy;
  sock_filter filter[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, refused},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  sock_fprog program{sizeof(filter) / sizeof(filter[0]), filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    return 77;
  execvp(argv[2], argv + 2);
  return 127;
}

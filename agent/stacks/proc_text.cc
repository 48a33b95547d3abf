#include "agent/stacks/proc_text.h"

#include <sys/syscall.h>

#include <algorithm>
#include <array>

#include "agent/process/proc.h"
#include "rendezvous/base/text.h"

namespace drun::agent {
namespace {

constexpr std::size_t kNameBytes = 64;
constexpr int kCapSysPtrace = 19;  // capabilities(7)

struct NamedCall {
  long number;
  const char* name;
};
// Where programs wait.
constexpr std::array kCalls{
    NamedCall{SYS_read, "read"},
    NamedCall{SYS_write, "write"},
    NamedCall{SYS_readv, "readv"},
    NamedCall{SYS_futex, "futex"},
    NamedCall{SYS_ppoll, "ppoll"},
    NamedCall{SYS_pselect6, "pselect"},
    NamedCall{SYS_epoll_pwait, "epoll_pwait"},
#ifdef SYS_poll
    NamedCall{SYS_poll, "poll"},
    NamedCall{SYS_select, "select"},
    NamedCall{SYS_epoll_wait, "epoll_wait"},
    NamedCall{SYS_pause, "pause"},
#endif
    NamedCall{SYS_nanosleep, "nanosleep"},
    NamedCall{SYS_clock_nanosleep, "clock_nanosleep"},
    NamedCall{SYS_recvfrom, "recvfrom"},
    NamedCall{SYS_recvmsg, "recvmsg"},
    NamedCall{SYS_sendto, "sendto"},
    NamedCall{SYS_sendmsg, "sendmsg"},
    NamedCall{SYS_connect, "connect"},
    NamedCall{SYS_accept4, "accept4"},
    NamedCall{SYS_wait4, "wait4"},
    NamedCall{SYS_waitid, "waitid"},
    NamedCall{SYS_flock, "flock"},
    NamedCall{SYS_fsync, "fsync"},
    NamedCall{SYS_openat, "openat"},
    NamedCall{SYS_ioctl, "ioctl"},
    NamedCall{SYS_restart_syscall, "restart_syscall"},
    NamedCall{SYS_rt_sigsuspend, "sigsuspend"},
    NamedCall{SYS_rt_sigtimedwait, "sigtimedwait"},
};

std::string_view first_word(std::string_view text) {
  return text.substr(0, text.find_first_of(" \n"));
}

std::string call_name(std::string_view text) {
  const auto called = leading_number<long>(first_word(text));
  if (!called || *called < 0) return "";
  for (const NamedCall& call : kCalls)
    if (call.number == *called) return call.name;
  return "system call " + std::to_string(*called);
}

// Between a program's system call and the function that carries it out.
bool is_kernel_entry(std::string_view function) {
  constexpr auto kBegins = std::to_array<std::string_view>(
      {// x86_64
       "entry_SYSCALL_", "do_syscall_", "x64_sys_call", "__x64_sys_", "__do_sys_", "__se_sys_",
       "asm_",
       // aarch64
       "el0t_64_", "el0_", "do_el0_", "invoke_syscall", "__arm64_sys_", "ret_from_fork"});
  return std::any_of(kBegins.begin(), kBegins.end(),
                     [function](std::string_view each) { return function.starts_with(each); });
}

// "[<0>] futex_wait_queue+0x61/0xa0" -> "futex_wait_queue", without those of kernel entry.
std::vector<std::string_view> kernel_functions(std::string_view text) {
  std::vector<std::string_view> functions;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t name = line.find("] ");
    if (name == line.npos || functions.size() >= kMostFrames) continue;
    const std::string_view function = line.substr(name + 2, line.find('+') - name - 2);
    if (!is_kernel_entry(function)) functions.push_back(function);
  }
  return functions;
}

}  // namespace

std::string state_words(char state) {
  switch (state) {
    case 'R':
      return "running";
    case 'S':
    case 'I':
      return "sleeping";
    case 'D':
      return "stuck in the kernel";
    case 'T':
      return "stopped";
    case 't':
      return "stopped by a debugger";
    case 'Z':
    case 'X':
      return "ended";
    default:
      return "in an unknown state";
  }
}

ThreadStack thread_of(const ThreadFiles& files) {
  ThreadStack thread{.name = files.comm.substr(0, std::min(files.comm.find('\n'), kNameBytes))};
  ProcessStat stat;
  parse_stat(files.stat, stat);
  const char state = stat.state;
  const std::string call = call_name(files.syscall);
  std::vector<std::string_view> functions = kernel_functions(files.kernel_stack);
  std::string_view channel = first_word(files.wchan);
  if (channel == "0") channel = {};
  if (channel.empty() && state == 'S' && !functions.empty()) channel = functions.front();
  std::string text = state_words(state);
  if (!channel.empty()) text += " in " + std::string(channel.substr(0, 64));
  if (!call.empty()) text += " (" + call + ")";
  thread.frames.push_back(std::move(text));
  // The call says it all, except for those into drivers.
  if (state == 'S' && !call.empty() && call != "ioctl") return thread;
  if (!functions.empty() && functions.front() == channel) functions.erase(functions.begin());
  for (const std::string_view function : functions)
    thread.frames.push_back(std::string(function) + " (kernel)");
  return thread;
}

std::string ptrace_objection(const std::optional<std::string>& yama, std::string_view status) {
  if (!yama) return "";
  const auto scope = leading_number<int>(*yama);
  if (!scope || *scope == 0) return "";
  std::uint64_t capabilities = 0;
  if (const std::size_t at = status.find("CapEff:"); at != status.npos) {
    std::string_view rest = status.substr(at + 7);
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    capabilities = leading_number<std::uint64_t>(rest, 16).value_or(0);
  }
  const bool has_right = (capabilities >> kCapSysPtrace & 1) == 1;
  if (has_right && *scope < 3) return "";
  return "ptrace forbidden: /proc/sys/kernel/yama/ptrace_scope is " + std::to_string(*scope);
}

}  // namespace drun::agent

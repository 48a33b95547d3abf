// edge. Everything that runs below this process, by one look at /proc.
//
// A process can leave its group and its session, but not its line of parents: this process is a
// child subreaper, so a process that loses its parent becomes a child of it (prctl(2)). All threads
// of one process share a parent, so one stat file a process says it all.
//
// Safety:  usable in a signal handler and after a crash of the heap: memory comes from mmap alone.
// Cost:    about 5 us a process on the machine. Nothing is kept between looks.
// Owner:   a snapshot; not copyable. Thread: any.
// Errors:  is_whole() is false, and all() empty, where /proc is hidden or another namespace's, and
//          where there is no memory for the look.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace drun::agent {

struct ProcessStat {
  int pid = 0;
  char state = '?';
  int parent = 0;
  int group = 0;
  bool operator==(const ProcessStat&) const = default;
};

// The head of /proc/<pid>/stat; the name in it may hold anything, blanks and brackets included.
// False, and `stat` unchanged, when it is not such a text. Core.
bool parse_stat(std::string_view text, ProcessStat& stat);

// Makes this process adopt orphans; false where the kernel refuses (before Linux 3.4).
bool become_subreaper();

class Descendants {
 public:
  // Looks now. Leaves out the children in `except` and the processes below them.
  explicit Descendants(std::span<const int> except = {});
  Descendants(const Descendants&) = delete;
  Descendants& operator=(const Descendants&) = delete;
  ~Descendants();

  // False: there may be processes below us that are not in all().
  bool is_whole() const { return is_whole_; }
  std::span<const ProcessStat> all() const&;
  std::span<const ProcessStat> all() const&& = delete;  // `for (... : Descendants().all())` dangles

 private:
  ProcessStat* found_;
  std::size_t count_ = 0;
  bool is_whole_ = false;
};

// Sends it to a process group that a worker was started to lead, without a look at /proc. Does
// nothing when the number now belongs to a process outside `session` that is not our child.
void signal_known_group(int group, int session, int signal);

// Sends it if that pid is still the process of the snapshot, not the next owner of its number.
bool send_signal(const ProcessStat& process, int signal);

// Whether a /proc/<pid>/status text names a handler for that signal (SigCgt). Core.
bool parse_handles(std::string_view status, int signal);

// False also when it cannot be read.
bool handles_signal(int pid, int signal);

// /proc/<pid>/comm; empty when it cannot be read. (Allocates.)
std::string process_name(int pid);

}  // namespace drun::agent

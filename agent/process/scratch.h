// edge. Directories for this process's short-lived files, in memory if possible.
//
// Place:   <parent>/drun_scratch.<name>.<random>, mode 0700. The parent is /dev/shm if it has room
//          (in a Docker container it has 64 MB by default), or else the temporary directory; of an
//          agent of --local-nodes, a directory of the launcher: if the launcher is killed, the
//          agent and its guardian end together, and neither can remove a directory.
// Removal: by the caller; if the process is killed, by the guardian (remove_if_killed); if that is
//          killed too, by the next guardian on the host (remove_abandoned_scratch).
// Owner:   a process owns a directory while it holds a shared lock on it (flock(2)). The kernel
//          releases the lock when the process ends, and it counts in all containers that share the
//          directory, unlike a pid. On network file systems there are no locks, and nothing is
//          searched there: it could block, and the owner may run on another host.
// Safety:  a removal never follows a symbolic link, never enters another file system, and removes
//          at most kMostRemoved entries per call.
// Thread:  call these functions while there is one, or from one thread only.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/result.h"

namespace drun::agent {

// TMPDIR, TMP, TEMP or TEMPDIR, the first that is set and not empty; by default /tmp. Errors:
// System, with its path.
Result<std::string> temporary_directory();

// Creates one. Returns its absolute path. Errors: System, with the places that were tried. `name`:
// without a '.'.
Result<std::string> make_scratch_directory(std::string_view name);
// The same in `base`. Also removes those that killed processes left there.
Result<std::string> make_scratch_directory_in(const std::string& base, std::string_view name);

// Makes one of this process again, empty, if it has been removed, as logind does at the user's last
// logout (RemoveIPC= in logind.conf(5)) and programs that clean /tmp do. False if it cannot.
bool keep_scratch_directory(const std::string& path);

// One that is made when it is first needed, and removed with its content.
class ScratchDirectory {
 public:
  explicit ScratchDirectory(std::string_view name) : name_(name) {}
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ~ScratchDirectory();

  // Call it before each use, because others may have removed the directory.
  Result<void> make();
  // For a file in it that had no room (is_out_of_room): replaces it, and its content, by an empty
  // one in the temporary directory. False if this fails, or if it has been replaced before.
  bool move_to_disk();
  // Removes its content, as far as possible.
  void clear() const;
  bool is_made() const { return !path_.empty(); }
  // Empty before make().
  const std::string& path() const { return path_; }

 private:
  const std::string name_;
  std::string path_;
  bool has_moved_ = false;
};

// Whether this path is below the memory directory.
bool is_in_memory_directory(std::string_view path);

// Whether this errno says that the file system, or the user's share of it, is full.
bool is_out_of_room(int error_number);

// From now on, directories are made in `directory`, which the caller's parent process removes.
void set_scratch_parent(std::string directory);
// Empty unless it was set.
const std::string& scratch_parent();

// --- Removal: of the directories of this job, and of those that killed processes left behind

// Where scratch directories are, if possible. Operations there never block.
inline constexpr const char* kMemoryDirectory = "/dev/shm";

// A scratch directory is "drun_scratch.<name>.<six random characters>", mode 0700.
inline constexpr std::string_view kScratchPrefix = "drun_scratch.";
bool is_scratch_name(std::string_view name);

// Whether it is the one with the worker key, which is removed first.
bool holds_secret(const char* path);

inline constexpr int kMostRemoved = 1 << 16;

// Removes everything in the directory, and the directory itself, as far as possible.
// Async-signal-safe. Blocks while its file system does.
void remove_contents_of(const char* path);
void remove_tree(const char* path);

// Locks a directory that this process has just created, until the process ends. False if it is
// gone, because another process took it for abandoned; create another one.
bool own_scratch_directory(const std::string& path);

// Removes the scratch directories of this user in `base` that no process owns. Never blocks on a
// network file system. Reads at most kMostScratchEntries entries of `base`.
inline constexpr int kMostScratchEntries = 4096;
void remove_abandoned_scratch(const std::string& base);

}  // namespace drun::agent

// edge. Removes scratch directories (scratch.h): those of this job, and those that processes of
// drun left behind because they were killed.
//
// Owner:   a process owns a directory while it holds a shared lock on it (flock(2)). The kernel
//          releases the lock when the process ends, and it counts in all containers that share the
//          directory, unlike a pid. On network file systems there are no locks, and nothing is
//          searched there: it could block, and the owner may run on another host.
// Safety:  never follows a symbolic link, never enters another file system, and removes at most
//          kMostRemoved entries per call.
#pragma once

#include <string>
#include <string_view>

namespace drun::agent {

// Where scratch directories are, if possible. Operations there never block.
inline constexpr const char* kMemoryDirectory = "/dev/shm";

// A scratch directory is "drun_scratch.<name>.<six random characters>", mode 0700.
inline constexpr std::string_view kScratchPrefix = "drun_scratch.";
bool is_scratch_name(std::string_view name);

// Whether it is the one with the worker key, which is removed first.
bool holds_secret(const char* path);

inline constexpr int kMostRemoved = 1 << 16;

// Removes the directory and everything in it, as far as possible. Async-signal-safe. Blocks while
// its file system does.
void remove_tree(const char* path);

// Locks a directory that this process has just created, until the process ends. False if it is
// gone, because another process took it for abandoned; create another one.
bool own_scratch_directory(const std::string& path);

// Removes the scratch directories of this user in `base` that no process owns. Never blocks on a
// network file system. Reads at most kMostScratchEntries entries of `base`.
inline constexpr int kMostScratchEntries = 4096;
void remove_abandoned_scratch(const std::string& base);

}  // namespace drun::agent

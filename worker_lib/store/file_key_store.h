// edge. A key-value store in a file, without a server, for ranks on one machine or with a shared
// file system.
//
// File:    one per group. Every rank writes its name into it, and the last one to leave removes it.
// Waiting: polls after 1, 2, 4, ... 20 ms. This is the only place in drun that polls: inotify does
//          not see writes of other machines, and a lock cannot wake a rank that waits for a key.
// Owner:   shared. Leaves the group with the last copy, without waiting for other ranks.
// Thread:  any, concurrently.
// Errors:  as for KeyStore. A rank that is killed leaves the file behind.
#pragma once

#include <memory>
#include <string>

#include "drun/key_store.h"

namespace drun::worker {

struct FileStoreSpec {
  std::string path;
  int rank = 0;
  int size = 1;
};

// Creates the file or joins the ranks that have. Throws WorkerError: Store if the file cannot be
// used, is of another kind, or belongs to an earlier run (it contains this rank, all ranks, or
// another number of ranks); Timeout if it cannot be locked.
std::shared_ptr<KeyStore> open_file_key_store(const FileStoreSpec& spec,
                                              KeyStore::Milliseconds timeout);

}  // namespace drun::worker

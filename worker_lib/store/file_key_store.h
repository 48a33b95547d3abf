// edge. A store in a file, for ranks of one machine or of a file system that they share; no server.
//
// File:    one for one group: every rank writes its name into it, and the last to leave removes it.
// Waiting: polls after 1, 2, 4, ... 20 ms. This is the only place in drun that polls: inotify does
//          not see writes of other machines, and a lock cannot wake a rank that waits for a key.
// Owner:   shared; leaves the group with the last copy, without waiting for other ranks.
// Thread:  any, all at once.
// Errors:  as KeyStore says; a rank that dies without leaving leaves the file behind.
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

// Creates the file, or joins those that have. Throws WorkerError: Store when the file holds an
// earlier run's words (this rank has been here, or all have, or there were another number), cannot
// be used or is something else; Timeout when its lock is not to be had.
std::shared_ptr<KeyStore> open_file_key_store(const FileStoreSpec& spec,
                                              KeyStore::Milliseconds timeout);

}  // namespace drun::worker

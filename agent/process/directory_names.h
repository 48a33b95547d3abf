// edge. Reads a directory with getdents64(2). It allocates no memory, unlike readdir(3), and is
// async-signal-safe.
// Thread:  any, one at a time for each descriptor.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace drun::agent {

// The record of getdents64(2).
struct DirectoryEntry {
  std::uint64_t inode;
  std::int64_t offset;
  std::uint16_t size;
  std::uint8_t type;
  char name[1];
};

// Calls `visit` with the names in the directory, from its current position on, until it returns
// false or no name is left. The names include "." and "..". `buffer`: at least 1 KiB, aligned as a
// DirectoryEntry. An error ends the names.
template <typename Visit>
void for_each_name(int directory, std::span<char> buffer, const Visit& visit) {
  while (true) {
    const long size = syscall(SYS_getdents64, directory, buffer.data(), buffer.size());
    if (size <= 0) return;
    for (std::size_t at = 0; at < static_cast<std::size_t>(size);) {
      const char* const record = buffer.data() + at;
      at += reinterpret_cast<const DirectoryEntry*>(record)->size;
      if (!visit(record + offsetof(DirectoryEntry, name))) return;
    }
  }
}

}  // namespace drun::agent

// edge. Small files and the names in folders: the kernel's (/proc, /sys, /dev), and the user's.
//
// Thread: any.   Errors: none; what cannot be read is empty.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace drun {

// At most 64 KiB of it.
std::string text_of_file(const std::string& path);

// All of a regular file; absent: it cannot be read, or is over 4 MiB. A pipe would be waited for.
std::optional<std::string> whole_text_of(const std::string& path);

// All of a file or pipe; absent: it cannot be read, or is over so many bytes.
std::optional<std::string> all_text_of(const std::string& path, std::size_t most_bytes);

// Ascending.
std::vector<std::string> names_in(const std::string& folder);

}  // namespace drun

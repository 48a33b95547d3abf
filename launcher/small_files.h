// edge. Small files and the names in folders: the kernel's (/proc, /sys, /dev), and the user's.
//
// Thread: any.   Errors: none; what cannot be read is empty.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace drun {

// At most 64 KiB of it.
std::string text_of_file(const std::string& path);

// All of a regular file; absent: it cannot be read, or is over 4 MiB. A pipe would be waited for.
std::optional<std::string> whole_text_of(const std::string& path);

// Ascending.
std::vector<std::string> names_in(const std::string& folder);

}  // namespace drun

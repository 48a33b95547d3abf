// edge. Reads small files and folders of the kernel (/proc, /sys, /dev) and of the user. What
// cannot be read counts as empty.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace drun {

// The first 64 KiB at most.
std::string text_of_file(const std::string& path);

// The contents of a regular file; absent if it cannot be read, is over 4 MiB, or is not regular (a
// pipe would block).
std::optional<std::string> whole_text_of(const std::string& path);

// The contents of a file or pipe; absent if it cannot be read or exceeds `most_bytes`.
std::optional<std::string> all_text_of(const std::string& path, std::size_t most_bytes);

// The names that begin with `prefix`, in ascending order.
std::vector<std::string> names_in(const std::string& folder, std::string_view prefix = "");

}  // namespace drun

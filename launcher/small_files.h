// edge. Small files of the kernel's and the names in its folders: /proc, /sys, /dev.
//
// Thread: any.   Errors: none; what cannot be read is empty.
#pragma once

#include <string>
#include <vector>

namespace drun {

// At most 64 KiB of it.
std::string text_of_file(const std::string& path);

// Ascending.
std::vector<std::string> names_in(const std::string& folder);

}  // namespace drun

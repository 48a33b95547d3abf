// core. Amounts of memory as users write them: --store-memory.
// Owner: values.  Thread: any.   Errors:  Usage, the reason alone.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "rendezvous/result.h"

namespace drun {

// A whole number of bytes, or with K, M, G or T behind it (powers of 1024; KiB and KB mean the
// same, in any case): from 1MiB to 1024TiB.
Result<std::size_t> parse_memory_size(std::string_view text);

// "1GiB", "1536MiB", "1048577 bytes".
std::string memory_size_text(std::size_t bytes);

}  // namespace drun

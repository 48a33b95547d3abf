// core. Lists as Slurm writes them: "0,1,5" as well as "0-3,6".
// Errors:  absent: this is no such list.   Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace drun::engines {

// How many things a list names, each once: numbers, ranges of numbers, and names of another kind
// ("GPU-<uuid>"). Absent for what is neither ("3-1", "4-", ""), and beyond kMostCount.
std::optional<int> size_of_list(std::string_view text);

// Whether it is one, and not a number of things: there is a comma or a dash in it.
bool is_list(std::string_view text);

}  // namespace drun::engines

// core. Host files and host words as PBS and LSF write them: a host once for each slot that it has.
// Errors:  absent: no host at all, a name or number that is none, too many.   Thread: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/engines/engine_facts.h"

namespace drun::engines {

struct HostSlots {
  std::string host{};
  int slots = 1;
  bool operator==(const HostSlots&) const = default;
};

struct SlotList {
  std::vector<HostSlots> hosts{};  // each once, in the order of their first appearance
  std::string from{};              // the variable that led here
};

// The first word of each line or, for words, each word: one slot each.
std::optional<SlotList> slots_from_lines(std::string_view text, std::string from);
std::optional<SlotList> slots_from_words(std::string_view text, std::string from);
// "hostA 4 hostB 2".
std::optional<SlotList> slots_from_pairs(std::string_view text, std::string from);

// The file that the variable `name` tells of. Absent and blamed: it cannot be read, names nobody.
std::optional<SlotList> slots_from_file(Reading& reading, const FileText& file_text,
                                        std::string_view name);

// Nodes, master address and, once node_rank is set, this node's slots; a rank beyond the list is
// blamed.
void take_hosts(Reading& reading, const SlotList& list, Facts& facts);

}  // namespace drun::engines

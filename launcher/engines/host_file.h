// core. Host files and host lists of PBS and LSF, which repeat a host for each of its slots. The
// parsers return nullopt for an empty list, an invalid name or number, and too many entries.
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
  std::vector<HostSlots> hosts{};  // unique, in order of first appearance
  std::string from{};              // the variable with the list or file name
};

// One slot per line (its first word) or per word.
std::optional<SlotList> slots_from_lines(std::string_view text, std::string from);
std::optional<SlotList> slots_from_words(std::string_view text, std::string from);
// "hostA 4 hostB 2".
std::optional<SlotList> slots_from_pairs(std::string_view text, std::string from);

// Reads the file named by the variable `name`. If it cannot be read or lists no host, returns
// nullopt and records the error.
std::optional<SlotList> slots_from_file(Reading& reading, const FileText& file_text,
                                        std::string_view name);

// Sets the number of nodes, the master address and, if node_rank is set, this node's slots. Records
// an error for a rank beyond the list.
void take_hosts(Reading& reading, const SlotList& list, Facts& facts);

}  // namespace drun::engines

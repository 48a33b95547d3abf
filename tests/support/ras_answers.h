// Answers of NCCL's RAS service in the format of NCCL's sources, for tests of their readers and for
// the stand-in that workers serve.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace drun::test {

struct RasRank {
  std::string host = "10.0.0.1";
  int pid = 0;
  unsigned long all_reduces = 0;
  bool is_missing = false;
  bool is_dead = false;
};

constexpr std::string_view kRasGreeting = "SERVER PROTOCOL 2\nOK\nOK\n";
constexpr std::string_view kOldRasGreeting =
    "SERVER PROTOCOL 2\nOK\nERROR: Unknown command SET FORMAT json\n";

inline std::string ras_member(std::size_t rank, const RasRank& one) {
  return R"(        {
          "rank": )" +
         std::to_string(rank) + R"(,
          "host": ")" +
         one.host + R"(",
          "pid": )" +
         std::to_string(one.pid) + R"(,
          "cuda_dev": 0,
)";
}

// One communicator with all ranks. `has_comma`: the format of NCCL 2.29 and later.
inline std::string ras_json(const std::vector<RasRank>& ranks, bool has_comma = true) {
  std::string present;
  std::string missing;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RasRank& one = ranks[i];
    std::string& list = one.is_missing ? missing : present;
    list += (list.empty() ? "" : ",\n") + ras_member(i, one);
    if (one.is_missing)
      list += std::string("          \"nvml_dev\": 0") + (has_comma ? ",\n" : "\n") +
              "          \"status\": {\n            \"unresponsive\": true,\n" +
              "            \"considered_dead\": " + (one.is_dead ? "true" : "false") +
              "\n          }\n        }";
    else
      list += R"(          "nvml_dev": 0,
          "status": {
            "init_state": 0,
            "async_error": -1,
            "finalize_called": false
          },
          "collective_counts": {
            "Broadcast": 3,
            "AllReduce": )" +
              std::to_string(one.all_reduces) + "\n          }\n        }";
  }
  return R"({
  "nccl_version": "2.28.9",
  "communicators_count": 1,
  "communicators": [
    {
      "hash": "0xae94423cfbb2ef4a",
      "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e",
      "size": )" +
         std::to_string(ranks.size()) + R"(,
      "ranks": [
)" + present +
         "\n      ],\n      \"missing_ranks\": [\n" + missing + R"(
      ]
    }
  ],
  "ras": {
    "collection_time_sec": 0.000,
    "timeouts_count": 0
  }
}
)";
}

}  // namespace drun::test

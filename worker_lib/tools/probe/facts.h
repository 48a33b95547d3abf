// core. One node's report: facts about its machine and its connections to other nodes.
//
// Units:   bytes, seconds, 10^9 bytes a second.
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace drun::probe {

// One machine. Empty or 0: not there, or not known.
struct NodeFacts {
  int node = 0;
  std::string host;
  std::string version;  // drun's
  std::string kernel;
  std::string address;  // numeric: where the others reach it
  std::string network;  // the interface that has it
  int mtu = 0;          // of that
  int port = 0;         // where its probe answers
  int cores = 0;        // that this process may use
  std::uint64_t memory_bytes = 0;
  std::uint64_t shm_bytes = 0;  // /dev/shm
  std::uint64_t shm_free_bytes = 0;
  std::optional<std::uint64_t> nofile;  // soft limits; absent: unlimited
  std::optional<std::uint64_t> nproc;
  std::optional<std::uint64_t> memlock_bytes;
  int gpus = 0;  // visible
  std::string driver;
  std::string nccl;  // the version that the loader finds
  bool has_infiniband = false;
  std::string problem;  // why the job's program cannot be started here
  bool operator==(const NodeFacts&) const = default;
};

// A visit to another node's probe.
struct Visit {
  int to = 0;
  bool has_arrived = false;     // connected, and small messages were answered
  bool large_ones_too = false;  // so were messages of more than a packet
  std::string reason;           // why not
  double round_trip_s = 0;      // the shortest
  double clock_ahead_s = 0;     // of this node's clock, over the other's
  double clock_bound_s = 0;     // by which that may be wrong
  bool operator==(const Visit&) const = default;
};

// How the name service of this node resolves another node's name and address.
struct NameLookup {
  int of = 0;
  bool is_done = false;  // in time
  std::vector<std::string> addresses;
  std::string name_back;
  bool operator==(const NameLookup&) const = default;
};

// An all_reduce with one neighbor.
struct PairRate {
  int with = 0;
  double gbytes_per_s = 0;
  std::string problem;  // empty: none
  bool operator==(const PairRate&) const = default;
};

struct NodeReport {
  NodeFacts facts;
  std::vector<Visit> visits;
  std::vector<NameLookup> names;
  std::vector<PairRate> pairs;
  bool operator==(const NodeReport&) const = default;
};

}  // namespace drun::probe

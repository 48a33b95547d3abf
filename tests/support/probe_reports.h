// Probe reports of a healthy job.
#pragma once

#include <string>

#include "worker_lib/tools/probe/findings.h"
#include "worker_lib/tools/probe/pair_rate.h"

namespace drun::test {

inline probe::NodeReport healthy_report(int node, int count) {
  probe::NodeReport report;
  const std::string number = std::to_string(node);
  report.facts = {.node = node,
                  .host = "gpu" + number,
                  .version = "0.1.0",
                  .kernel = "6.1.0",
                  .address = "10.0.0." + number,
                  .network = "eth0",
                  .mtu = 9000,
                  .port = 4000 + node,
                  .cores = 64,
                  .memory_bytes = std::uint64_t{512} << 30,
                  .shm_bytes = std::uint64_t{256} << 30,
                  .shm_free_bytes = std::uint64_t{255} << 30,
                  .nofile = 1048576,
                  .nproc = std::nullopt,
                  .memlock_bytes = std::nullopt,
                  .gpus = 8,
                  .driver = "550.54.15",
                  .nccl = "2.21.5",
                  .has_infiniband = true,
                  .problem = {}};
  for (const int other : probe::visits_of(node, count)) {
    report.visits.push_back({.to = other,
                             .has_arrived = true,
                             .large_ones_too = true,
                             .reason = {},
                             .round_trip_s = 50e-6,
                             .clock_ahead_s = 1e-3,
                             .clock_bound_s = 25e-6});
    report.names.push_back({.of = other,
                            .is_done = true,
                            .addresses = {"10.0.0." + std::to_string(other)},
                            .name_back = "gpu" + std::to_string(other) + ".cluster"});
  }
  for (const probe::Pairing& pairing : probe::pairings(node, count))
    report.pairs.push_back({.with = pairing.with, .gbytes_per_s = 10, .problem = {}});
  return report;
}

inline probe::Reports healthy_reports(int count) {
  probe::Reports reports;
  for (int node = 0; node < count; ++node) reports.emplace_back(healthy_report(node, count));
  return reports;
}

inline void set_rate(probe::Reports& reports, int one, int other, double gbytes_per_s) {
  for (auto& report : reports) {
    for (probe::PairRate& pair : report->pairs) {
      const int node = report->facts.node;
      if ((node == one && pair.with == other) || (node == other && pair.with == one))
        pair.gbytes_per_s = gbytes_per_s;
    }
  }
}

}  // namespace drun::test

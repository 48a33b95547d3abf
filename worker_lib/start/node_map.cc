#include "worker_lib/start/node_map.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <map>
#include <string>

#include "rendezvous/bytes.h"
#include "worker_lib/deadline.h"

namespace drun::worker {
namespace {

std::string this_node() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::array<char, 64> network{};
  const ssize_t length = readlink("/proc/self/ns/net", network.data(), network.size());
  // Where /proc does not tell, the host's name must do.
  if (boot.empty() || length <= 0) {
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    return host.data();
  }
  return boot + " " + std::string(network.data(), static_cast<std::size_t>(length));
}

std::string encode(const std::vector<int>& nodes) {
  std::string bytes;
  ByteWriter writer(bytes);
  for (const int node : nodes) writer.u32(static_cast<std::uint32_t>(node));
  return bytes;
}

std::vector<int> decode(const std::string& bytes, int size) {
  ByteReader reader(bytes);
  std::vector<int> nodes;
  for (int rank = 0; rank < size; ++rank) {
    const std::uint32_t node = reader.u32();
    nodes.push_back(static_cast<int>(std::min(node, static_cast<std::uint32_t>(size))));
  }
  if (!reader.failed() && reader.at_end()) return nodes;
  throw WorkerError({.kind = WorkerError::Kind::Mismatch,
                     .rank = -1,
                     .message = "rank 0 told something else than the nodes of " +
                                std::to_string(size) + " ranks; is every rank the same program?"});
}

}  // namespace

std::vector<int> map_nodes(KeyStore& store, int rank, int size, Deadline deadline) {
  if (rank != 0) {
    store.set("node/" + std::to_string(rank), this_node(), left_until(deadline));
    return decode(store.get("nodes", left_until(deadline)), size);
  }
  std::map<std::string, int> number_of{{this_node(), 0}};
  std::vector<int> nodes{0};
  for (int other = 1; other < size; ++other) {
    const std::string node = store.get("node/" + std::to_string(other), left_until(deadline));
    nodes.push_back(number_of.emplace(node, static_cast<int>(number_of.size())).first->second);
  }
  store.set("nodes", encode(nodes), left_until(deadline));
  return nodes;
}

}  // namespace drun::worker

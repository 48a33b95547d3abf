#include "worker_lib/start/node_map.h"

#include <unistd.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <map>
#include <string>

#include "rendezvous/base/bytes.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/mesh/gather_texts.h"

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

}  // namespace

std::vector<RankPlace> map_nodes(const std::shared_ptr<KeyStore>& store, int rank, int size,
                                 Deadline deadline) {
  const ProcessName process = own_process();
  std::string own;
  ByteWriter writer(own);
  writer.u32(process.pid);
  writer.u64(process.pid_namespace);
  writer.u64(process.started);
  writer.u64(hash_of(this_node()));
  BackendContext group;
  group.rank = rank;
  group.size = size;
  group.store = store;
  group.deadline = deadline;
  std::map<std::uint64_t, int> numbers;  // of the nodes
  std::vector<RankPlace> places;
  for (const std::string& text : gather_texts(group, "node", own)) {
    ByteReader reader(text);
    RankPlace place;
    place.process.pid = reader.u32();
    place.process.pid_namespace = reader.u64();
    place.process.started = reader.u64();
    place.node = numbers.emplace(reader.u64(), static_cast<int>(numbers.size())).first->second;
    places.push_back(place);
  }
  return places;
}

}  // namespace drun::worker

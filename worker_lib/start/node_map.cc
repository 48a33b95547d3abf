#include "worker_lib/start/node_map.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <map>
#include <string>

#include "rendezvous/base/bytes.h"
#include "worker_lib/base/deadline.h"

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

void write(ByteWriter& writer, const ProcessName& process) {
  writer.u32(process.pid);
  writer.i64(static_cast<std::int64_t>(process.pid_namespace));
  writer.i64(static_cast<std::int64_t>(process.started));
}

ProcessName read_process(ByteReader& reader) {
  ProcessName process;
  process.pid = reader.u32();
  process.pid_namespace = static_cast<std::uint64_t>(reader.i64());
  process.started = static_cast<std::uint64_t>(reader.i64());
  return process;
}

// A rank's own report.
struct Arrival {
  std::string node;
  ProcessName process;
};

std::string encode(const Arrival& arrival) {
  std::string bytes;
  ByteWriter writer(bytes);
  write(writer, arrival.process);
  return bytes + arrival.node;
}

Arrival decode_arrival(const std::string& bytes) {
  ByteReader reader(bytes);
  Arrival arrival;
  arrival.process = read_process(reader);
  if (reader.failed()) return {bytes, {}};
  static const std::size_t process_bytes = encode(Arrival{}).size();
  arrival.node = bytes.substr(process_bytes);
  return arrival;
}

std::string encode(const std::vector<RankPlace>& places) {
  std::string bytes;
  ByteWriter writer(bytes);
  for (const RankPlace& place : places) {
    writer.u32(static_cast<std::uint32_t>(place.node));
    write(writer, place.process);
  }
  return bytes;
}

std::vector<RankPlace> decode_places(const std::string& bytes, int size) {
  ByteReader reader(bytes);
  std::vector<RankPlace> places;
  for (int rank = 0; rank < size && !reader.failed(); ++rank) {
    const std::uint32_t node = reader.u32();
    places.push_back(
        {static_cast<int>(std::min(node, static_cast<std::uint32_t>(size))), read_process(reader)});
  }
  if (!reader.failed() && reader.at_end()) return places;
  throw WorkerError({.kind = WorkerError::Kind::Mismatch,
                     .rank = -1,
                     .message = "rank 0 told something else than the nodes of " +
                                std::to_string(size) + " ranks; is every rank the same program?"});
}

}  // namespace

std::vector<RankPlace> map_nodes(KeyStore& store, int rank, int size, Deadline deadline) {
  const Arrival own{this_node(), own_process()};
  if (rank != 0) {
    store.set("node/" + std::to_string(rank), encode(own), left_until(deadline));
    return decode_places(store.get("nodes", left_until(deadline)), size);
  }
  std::map<std::string, int> number_of{{own.node, 0}};
  std::vector<RankPlace> places{{0, own.process}};
  for (int other = 1; other < size; ++other) {
    const Arrival arrival =
        decode_arrival(store.get("node/" + std::to_string(other), left_until(deadline)));
    const int next = static_cast<int>(number_of.size());
    places.push_back({number_of.emplace(arrival.node, next).first->second, arrival.process});
  }
  store.set("nodes", encode(places), left_until(deadline));
  return places;
}

}  // namespace drun::worker

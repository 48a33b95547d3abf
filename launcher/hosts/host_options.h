// core. What the user asked for about other machines, as given on the command line.
// Shape:   absent or empty: not given; pool.h and host_plan.h say what the texts mean.
// Owner:   a value; copy freely.   Thread: any.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace drun {

// --map-by: how many of -np's workers each host gets.
struct MapBy {
  enum class Order { Slot, Node };  // fill a host before the next; or one each in turn
  Order order = Order::Slot;
  std::optional<int> per_node{};  // ppr:N:node
  bool operator==(const MapBy&) const = default;
};

struct HostOptions {
  std::optional<std::string> hosts{};     // --hosts
  std::optional<std::string> hostfile{};  // --hostfile
  std::optional<std::string> include{};
  std::optional<std::string> exclude{};
  std::optional<int> np{};             // workers on all hosts together
  std::vector<std::string> exports{};  // -x, each as it was written
  std::vector<std::string> mca{};      // --mca, each "NAME=VALUE"; exports have them, too
  bool allow_run_as_root = false;      // mpirun's; here everybody may
  std::optional<MapBy> map_by{};
  bool oversubscribe = false;
  std::string ssh = "ssh";
  std::vector<std::string> ssh_args{};  // words
  std::optional<int> fanout{};
  std::optional<int> ssh_tree{};   // --ssh-tree: branches
  bool leaves_logs_there = false;  // --no-gather-logs
  std::chrono::milliseconds login_timeout{std::chrono::seconds(120)};
  // Every option that was given, by its canonical name, for the agents on the hosts; only with
  // --hosts or --hostfile.
  std::vector<std::pair<std::string, std::optional<std::string>>> given{};

  bool names_hosts() const { return hosts || hostfile; }
  bool operator==(const HostOptions&) const = default;
};

}  // namespace drun

#include <vector>

#include "drun/device_mesh.h"
#include "tests/support/catch.h"
#include "tests/support/in_rank.h"
#include "tests/support/ranks.h"

namespace drun {
namespace {

using test::check_exited;
using test::expect;
using test::RankEnd;
using test::run_ranks;
using test::Say;
using test::StoreProcess;

}  // namespace

TEST_CASE("a device mesh has a group along each dimension") {
  const StoreProcess store;
  check_exited(run_ranks({.size = 6, .port = store.port()}, [](int rank, const Say&) {
    ProcessGroup world = init_process_group();
    const DeviceMesh mesh = init_device_mesh(world, {3, 1, 2}, {"dp", "pp", "tp"});
    expect(mesh.size() == 6 && mesh.size("tp") == 2 && mesh.size("pp") == 1, "size");
    expect(mesh.coordinate("dp") == rank / 2 && mesh.coordinate("tp") == rank % 2, "coordinate");
    for (const std::string& name : mesh.names()) {
      ProcessGroup group = mesh.group(name);
      expect(group.rank() == mesh.coordinate(name), "rank in group");
      std::vector<int> sum{rank};
      group.all_reduce(sum);
      int expected = 0;
      for (const int member : mesh.ranks(name)) expected += member;
      expect(sum[0] == expected, "sum");
    }
    const DeviceMesh inner = mesh.submesh({"tp"});
    expect(inner.size() == 2 && inner.names().size() == 1, "submesh");
    std::vector<int> one{1};
    inner.group("tp").all_reduce(one);
    expect(one[0] == 2, "submesh's group");
    world.barrier();
  }));
}

TEST_CASE("meshes that do not fit or differ are rejected on every rank") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 4, .port = store.port()}, [](int rank, const Say& say) {
    ProcessGroup world = init_process_group();
    const auto refused = [&](const std::vector<int>& shape, const std::vector<std::string>& names) {
      try {
        init_device_mesh(world, shape, names);
      } catch (const WorkerError& error) {
        say(std::string(to_string(error.kind())) + ": " + error.what());
      }
    };
    refused({2, 3}, {"dp", "tp"});
    refused(rank == 2 ? std::vector<int>{4, 1} : std::vector<int>{2, 2}, {"dp", "tp"});
    world.barrier();
  });
  check_exited(ends);
  for (const RankEnd& end : ends) {
    CHECK_THAT(end.said, ContainsSubstring("usage: rank ") &&
                             ContainsSubstring("there are 4 ranks for 6 places"));
    CHECK_THAT(end.said, ContainsSubstring("mismatch: rank ") && ContainsSubstring("rank 2 for"));
  }
}

}  // namespace drun

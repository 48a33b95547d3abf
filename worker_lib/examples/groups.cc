// Some ranks among themselves: a group of chosen ones, groups by color, and a grid of all with a
// group along each of its dimensions.
//
//     drun --standalone --nproc_per_node=4 ./groups
//
//     even ranks add up to 2            (these four in any order)
//     team 0 has ranks 3 0
//     team 1 has ranks 1
//     team 2 has ranks 2
//     rank 0 at dp=0 tp=0: row sum 1, column sum 2
//     rank 1 at dp=0 tp=1: row sum 1, column sum 4
//     rank 2 at dp=1 tp=0: row sum 5, column sum 2
//     rank 3 at dp=1 tp=1: row sum 5, column sum 4
#include <iostream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "drun/device_mesh.h"
#include "drun/process_group.h"
#include "drun/record.h"

namespace {

int sum_over(drun::ProcessGroup group, int number) {
  group.all_reduce(number);
  return number;
}

// One write a line, so that lines of several ranks never mix.
void print(const std::string& line) { std::cout << line + "\n" << std::flush; }

// All ranks call new_group, including those that will not be members.
void even_ranks(drun::ProcessGroup& world) {
  std::vector<int> even;
  for (int rank = 0; rank < world.size(); rank += 2) even.push_back(rank);
  const std::optional<drun::ProcessGroup> group = world.new_group(even);
  if (!group) return;
  const int sum = sum_over(*group, world.rank());
  if (world.rank() == 0) print("even ranks add up to " + std::to_string(sum));
}

// Teams of those with the same color, the highest rank first. Each team's first rank tells.
void teams(drun::ProcessGroup& world) {
  const int color = world.rank() % 3;
  std::optional<drun::ProcessGroup> team = world.split(color, /*key=*/-world.rank());
  std::vector<int> members(static_cast<std::size_t>(team->size()));
  const int own = world.rank();
  team->all_gather(own, members);
  if (team->rank() != 0) return;
  std::ostringstream line;
  line << "team " << color << " has ranks";
  for (const int member : members) line << " " << member;
  print(line.str());
}

// Rows of two: data parallel down the columns, tensor parallel along the rows.
void mesh(drun::ProcessGroup& world) {
  if (world.size() % 2 != 0) return;
  const drun::DeviceMesh grid = drun::init_device_mesh(world, {world.size() / 2, 2}, {"dp", "tp"});
  const int row = sum_over(grid.group("tp"), world.rank());
  const int column = sum_over(grid.group("dp"), world.rank());
  std::ostringstream line;
  line << "rank " << world.rank() << " at dp=" << grid.coordinate("dp")
       << " tp=" << grid.coordinate("tp") << ": row sum " << row << ", column sum " << column;
  for (int turn = 0; turn < world.size(); ++turn) {  // in rank order
    if (turn == world.rank()) print(line.str());
    world.barrier();
  }
}

}  // namespace

int main() {
  return drun::record([] {
    drun::ProcessGroup world = drun::init_process_group();
    even_ranks(world);
    teams(world);
    mesh(world);
    world.barrier();
  });
}

// A tour: every operation once, each result checked. In each, rank r brings numbers that tell r.
//
//     drun --standalone --nproc_per_node=4 ./collectives
//
//     4 ranks, 22 operations, every result as it should be
#include <cstdint>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "drun/process_group.h"
#include "drun/record.h"

namespace {

using Numbers = std::vector<std::int64_t>;

// Counts what has been checked, and throws at the first difference.
class Tour {
 public:
  void check(const std::string& operation, const Numbers& got, const Numbers& expected) {
    ++count_;
    if (got == expected) return;
    throw std::runtime_error(operation + " gave " + text(got) + ", not " + text(expected));
  }
  int count() const { return count_; }

 private:
  static std::string text(const Numbers& numbers) {
    std::string text = "(";
    for (const std::int64_t number : numbers) text += " " + std::to_string(number);
    return text + " )";
  }
  int count_ = 0;
};

// first, first + 1, ...
Numbers counting(std::size_t count, std::int64_t first) {
  Numbers numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

// One to all, all to one, all to all: in place.
void in_place(drun::ProcessGroup& group, Tour& tour) {
  const std::int64_t rank = group.rank();
  const std::int64_t size = group.size();
  const int last = group.size() - 1;

  Numbers data{10 * rank, rank};
  group.broadcast(data, last);
  tour.check("broadcast", data, {10 * last, last});

  data = {rank, 1};
  group.all_reduce(data);
  tour.check("all_reduce", data, {size * (size - 1) / 2, size});

  data = {rank, -rank};
  group.all_reduce(data, drun::ReduceOp::Max);
  tour.check("all_reduce of maxima", data, {last, 0});

  data = {rank, 1};
  group.reduce(data, /*root=*/0);
  tour.check("reduce", data, rank == 0 ? Numbers{size * (size - 1) / 2, size} : Numbers{rank, 1});
}

// Every rank's part in one buffer, in rank order.
void parts(drun::ProcessGroup& group, Tour& tour) {
  const std::int64_t rank = group.rank();
  const auto size = static_cast<std::size_t>(group.size());
  const Numbers everybody = counting(size, 0);

  const Numbers own{rank};
  Numbers all(size);
  group.all_gather(own, all);
  tour.check("all_gather", all, everybody);

  all.assign(rank == 0 ? size : 0, -1);
  group.gather(own, all, /*root=*/0);
  tour.check("gather", all, rank == 0 ? everybody : Numbers{});

  const Numbers scattered = rank == 0 ? everybody : Numbers{};
  Numbers mine{-1};
  group.scatter(scattered, mine, /*root=*/0);
  tour.check("scatter", mine, {rank});

  group.reduce_scatter(everybody, mine);
  tour.check("reduce_scatter", mine, {rank * group.size()});

  // Number 100 a + b goes from rank a to rank b.
  all.assign(size, -1);
  const Numbers sent = counting(size, 100 * rank);
  group.all_to_all(sent, all);
  Numbers expected;
  for (const std::int64_t from : everybody) expected.push_back(100 * from + rank);
  tour.check("all_to_all", all, expected);
}

// Rank r has r + 1 numbers, all of them r.
void uneven_parts(drun::ProcessGroup& group, Tour& tour) {
  const auto rank = static_cast<std::size_t>(group.rank());
  drun::ProcessGroup::Counts counts;
  Numbers everybody;
  for (std::size_t each = 0; each < static_cast<std::size_t>(group.size()); ++each) {
    counts.push_back(each + 1);
    everybody.insert(everybody.end(), each + 1, static_cast<std::int64_t>(each));
  }
  const Numbers own(rank + 1, group.rank());

  Numbers all(everybody.size());
  group.all_gather_v(own, all, counts);
  tour.check("all_gather_v", all, everybody);

  all.assign(rank == 0 ? everybody.size() : 0, -1);
  group.gather_v(own, all, counts, /*root=*/0);
  tour.check("gather_v", all, rank == 0 ? everybody : Numbers{});

  const Numbers scattered = rank == 0 ? everybody : Numbers{};
  Numbers mine(own.size());
  group.scatter_v(scattered, counts, mine, /*root=*/0);
  tour.check("scatter_v", mine, own);

  group.reduce_scatter_v(everybody, counts, mine);
  tour.check("reduce_scatter_v", mine, Numbers(own.size(), group.rank() * group.size()));

  // Every rank sends b + 1 numbers to rank b, and gets as many as its own from each.
  const drun::ProcessGroup::Counts from(counts.size(), rank + 1);
  all.assign(counts.size() * (rank + 1), -1);
  group.all_to_all_v(everybody, counts, all, from);
  tour.check("all_to_all_v", all, Numbers(all.size(), group.rank()));

  // The same, if no rank knows what the others have.
  tour.check("all_gather_v", group.all_gather_v(own), everybody);
  tour.check("gather_v", group.gather_v(own, /*root=*/0), rank == 0 ? everybody : Numbers{});
  const drun::ProcessGroup::Counts to = rank == 0 ? counts : drun::ProcessGroup::Counts{};
  tour.check("scatter_v", group.scatter_v(scattered, to, /*root=*/0), own);
  tour.check("all_to_all_v", group.all_to_all_v(everybody, counts), all);
}

// Any trivially copyable type can be moved, also a single value.
struct Particle {
  double x = 0;
  std::int32_t owner = 0;
};

void structs(drun::ProcessGroup& group, Tour& tour) {
  const Particle own{0.5 * group.rank(), group.rank()};
  std::vector<Particle> all(static_cast<std::size_t>(group.size()));
  group.all_gather(own, all);
  Numbers owners;
  for (const Particle& each : all) {
    if (each.x == 0.5 * each.owner) owners.push_back(each.owner);
  }
  tour.check("all_gather of structs", owners, counting(all.size(), 0));
}

// Messages around a ring, during a collective.
void messages(drun::ProcessGroup& group, Tour& tour) {
  const int size = group.size();
  if (size > 1 && group.rank() == 0) {
    Numbers sums{0, 0};
    for (int i = 1; i < size; ++i) {
      std::int64_t number = 0;
      const int sender = group.recv(number, drun::any_rank, /*tag=*/1).peer();
      sums[0] += number;
      sums[1] += sender;
    }
    tour.check("recv from any rank", sums, {5 * size * (size - 1), size * (size - 1) / 2});
  } else {
    const std::int64_t number = 10 * group.rank();
    if (size > 1) group.send(number, /*to=*/0, /*tag=*/1);
    tour.check("send", {number}, {10 * group.rank()});
  }

  const int next = (group.rank() + 1) % size;
  const int before = (group.rank() + size - 1) % size;

  Numbers sum{1};
  const drun::Work summing = group.all_reduce(sum, drun::async_op);
  Numbers mine{group.rank()};
  Numbers got{-1};
  if (size > 1) {
    drun::wait_all(drun::batch_isend_irecv(
        group, {drun::P2POp::send(mine, next), drun::P2POp::recv(got, before)}));
  } else {
    got = mine;
  }
  tour.check("batch_isend_irecv", got, {before});
  summing.wait();
  tour.check("asynchronous all_reduce", sum, {size});
}

}  // namespace

int main(int argc, char** argv) {
  return drun::record([argc, argv] {
    drun::InitOptions options;
    if (argc > 1) options.backend = argv[1];
    drun::ProcessGroup group = drun::init_process_group(options);
    Tour tour;
    in_place(group, tour);
    parts(group, tour);
    uneven_parts(group, tour);
    structs(group, tour);
    messages(group, tour);
    group.barrier();  // a rank gets here only if all of its checks passed
    if (group.rank() == 0) {
      std::cout << group.size() << " ranks, " << tour.count()
                << " operations, every result as it should be\n"
                << std::flush;
    }
  });
}

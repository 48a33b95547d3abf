#include <unistd.h>

#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "drun/process_group.h"
#include "tests/support/catch.h"
#include "tests/support/gpu_memory.h"
#include "tests/support/places.h"
#include "tests/support/ranks.h"
#include "worker_lib/ucx/ucx_mesh.h"

namespace drun {
namespace {

using test::run_ranks;
using test::Say;
using test::StoreProcess;

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream stream(line.substr(1));
  for (std::string cell; std::getline(stream, cell, '|');) {
    const std::size_t first = cell.find_first_not_of(' ');
    const std::size_t last = cell.find_last_not_of(' ');
    cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
  }
  return cells;
}

struct Table {
  std::vector<std::string> backends;
  std::vector<std::vector<std::string>> rows;  // the first cell names the capability
};

// Reads the table below "Backends".
Table read_table() {
  std::ifstream readme(testing::source_file("worker_lib/README.md"));
  Table table;
  bool is_there = false;
  for (std::string line; std::getline(readme, line);) {
    is_there = is_there || line == "## Backends";
    if (!is_there || line.rfind("|", 0) != 0) {
      if (!table.rows.empty()) break;
      continue;
    }
    const std::vector<std::string> cells = cells_of(line);
    if (table.backends.empty()) {
      table.backends.assign(cells.begin() + 1, cells.end());
    } else if (cells[0].find("---") == std::string::npos) {
      table.rows.push_back(cells);
    }
  }
  return table;
}

// Numbers in the memory that the backend works on.
template <typename T>
class Numbers {
 public:
  Numbers(std::size_t count, T value, bool is_on_gpu) : of_host_(count, value) {
    if (is_on_gpu) of_gpu_.emplace(count, value);
  }
  operator Elements() { return of_gpu_ ? of_gpu_->named() : Elements(of_host_); }
  std::vector<T> read() const { return of_gpu_ ? of_gpu_->read() : of_host_; }

 private:
  std::vector<T> of_host_;
  std::optional<test::OnGpu<T>> of_gpu_;
};

void exchange(ProcessGroup& group, bool is_on_gpu, bool is_any, int tag = 0) {
  Numbers<int> data(1, group.rank(), is_on_gpu);
  if (group.rank() == 0 && (is_any || tag != 0) && is_on_gpu) {
    group.recv(data, any_rank, tag);  // rejected, like the peer's call
  } else if (group.rank() == 0) {
    group.send(data, 1, tag);
  } else {
    group.recv(data, is_any ? any_rank : std::optional<int>(0), tag);
  }
}

template <typename T>
void reduce_with(ProcessGroup& group, bool is_on_gpu, ReduceOp op, T result) {
  Numbers<T> data(3, T(1), is_on_gpu);
  group.all_reduce(data, op);
  for (const T number : data.read()) {
    if (!(number == result)) throw std::runtime_error("a wrong result");
  }
}

using Action = std::function<void(ProcessGroup& group)>;

template <typename T>
Action sum(bool is_on_gpu) {
  return
      [is_on_gpu](ProcessGroup& group) { reduce_with<T>(group, is_on_gpu, ReduceOp::Sum, T(2)); };
}

// The call for each word in the table's rows, with two ranks.
std::map<std::string, Action> actions(bool is_on_gpu) {
  using Counts = ProcessGroup::Counts;
  static Numbers<int> one(1, 0, is_on_gpu);
  static Numbers<int> two(2, 0, is_on_gpu);
  static Numbers<int> other_two(2, 0, is_on_gpu);
  static std::vector<int> of_host(1);
  const Counts ones{1, 1};
  const auto at_root = [](ProcessGroup& group, Numbers<int>& data) {
    return group.rank() == 0 ? Elements(data) : Elements();
  };
  const auto reduced = [=](ReduceOp op, int result) {
    return [=](ProcessGroup& group) { reduce_with<int>(group, is_on_gpu, op, result); };
  };
  return {
      {"barrier", [](ProcessGroup& group) { group.barrier(); }},
      {"broadcast", [](ProcessGroup& group) { group.broadcast(one, 0); }},
      {"all_reduce", [](ProcessGroup& group) { group.all_reduce(one); }},
      {"reduce", [](ProcessGroup& group) { group.reduce(one, 0); }},
      {"gather", [=](ProcessGroup& group) { group.gather(one, at_root(group, two), 0); }},
      {"gather_v", [=](ProcessGroup& group) { group.gather_v(one, at_root(group, two), ones, 0); }},
      {"all_gather", [](ProcessGroup& group) { group.all_gather(one, two); }},
      {"all_gather_v", [=](ProcessGroup& group) { group.all_gather_v(one, two, ones); }},
      {"scatter", [=](ProcessGroup& group) { group.scatter(at_root(group, two), one, 0); }},
      {"scatter_v",
       [=](ProcessGroup& group) { group.scatter_v(at_root(group, two), ones, one, 0); }},
      {"reduce_scatter", [](ProcessGroup& group) { group.reduce_scatter(two, one); }},
      {"reduce_scatter_v", [=](ProcessGroup& group) { group.reduce_scatter_v(two, ones, one); }},
      {"all_to_all", [](ProcessGroup& group) { group.all_to_all(two, other_two); }},
      {"all_to_all_v",
       [=](ProcessGroup& group) { group.all_to_all_v(two, ones, other_two, ones); }},
      {"send", [=](ProcessGroup& group) { exchange(group, is_on_gpu, false); }},
      {"recv", [=](ProcessGroup& group) { exchange(group, is_on_gpu, false); }},
      {"recv from any_rank", [=](ProcessGroup& group) { exchange(group, is_on_gpu, true); }},
      {"tags", [=](ProcessGroup& group) { exchange(group, is_on_gpu, false, 3); }},
      {"u8", sum<std::uint8_t>(is_on_gpu)},
      {"i8", sum<std::int8_t>(is_on_gpu)},
      {"i16", sum<std::int16_t>(is_on_gpu)},
      {"i32", sum<std::int32_t>(is_on_gpu)},
      {"u32", sum<std::uint32_t>(is_on_gpu)},
      {"i64", sum<std::int64_t>(is_on_gpu)},
      {"u64", sum<std::uint64_t>(is_on_gpu)},
      {"f16", sum<Float16>(is_on_gpu)},
      {"bf16", sum<BFloat16>(is_on_gpu)},
      {"f8e4m3", sum<Float8E4M3>(is_on_gpu)},
      {"f8e5m2", sum<Float8E5M2>(is_on_gpu)},
      {"f32", sum<float>(is_on_gpu)},
      {"f64", sum<double>(is_on_gpu)},
      {"product", reduced(ReduceOp::Product, 1)},
      {"min", reduced(ReduceOp::Min, 1)},
      {"max", reduced(ReduceOp::Max, 1)},
      {"avg",
       [=](ProcessGroup& group) { reduce_with<float>(group, is_on_gpu, ReduceOp::Avg, 1.0f); }},
      {"band", reduced(ReduceOp::Band, 1)},
      {"bor", reduced(ReduceOp::Bor, 1)},
      {"bxor", reduced(ReduceOp::Bxor, 0)},
      {"memory of the host", [](ProcessGroup& group) { group.all_reduce(of_host); }},
      {"memory of a GPU",
       [=](ProcessGroup& group) {
         is_on_gpu ? group.all_reduce(one)
                   : group.all_reduce(Elements(&of_host, 1, DataType::F32, 0));
       }},
  };
}

// "sums of f16, bf16" -> f16, bf16.
std::vector<std::string> words_of(std::string what) {
  constexpr char kSums[] = "sums of ";
  if (what.rfind(kSums, 0) == 0) what.erase(0, sizeof(kSums) - 1);
  std::vector<std::string> words;
  std::istringstream stream(what);
  for (std::string word; std::getline(stream, word, ',');) {
    words.push_back(word.substr(word.find_first_not_of(' ')));
  }
  return words;
}

// Returns "yes", "no", or an error.
std::string answer_of(ProcessGroup& group, const std::vector<std::string>& words) {
  const std::map<std::string, Action> known = actions(group.backend() == "nccl");
  std::size_t refused = 0;
  for (const std::string& word : words) {
    const auto action = known.find(word);
    if (action == known.end()) return "an unknown word: " + word;
    try {
      action->second(group);
    } catch (const WorkerError& error) {
      if (error.kind() != WorkerError::Kind::Unsupported) return error.what();
      ++refused;
    }
  }
  if (refused == 0) return "yes";
  return refused == words.size() ? "no" : "some";
}

// Reports each row whose entry for the backend differs from its behavior.
void compare(const Table& table, std::size_t backend, const Say& say) {
  InitOptions options;
  options.backend = table.backends[backend];
  if (options.backend == "nccl") test::use_standins();
  ProcessGroup group = ProcessGroup::connect(options);
  for (const std::vector<std::string>& row : table.rows) {
    const std::string is = answer_of(group, words_of(row[0]));
    if (is == row[backend + 1]) continue;
    say(options.backend + ", " + row[0] + ": said to be " + row[backend + 1] + ", is " + is);
  }
  group.barrier();
}

}  // namespace

TEST_CASE("the README's table matches what the backends can do") {
  const Table table = read_table();
  REQUIRE(table.backends ==
          std::vector<std::string>{"gloo", "tcp", "ucx", "shm", "shm+tcp", "mpi", "nccl"});
  REQUIRE(table.rows.size() >= 13);
  const StoreProcess store;
  const std::size_t backend = GENERATE(0u, 1u, 2u, 3u, 4u, 6u);  // mpi is tested under mpirun
  if (table.backends[backend] == "ucx" && !worker::has_ucx()) return;
  for (const auto& end : run_ranks({.size = 2, .port = store.port()},
                                   [&](int, const Say& say) { compare(table, backend, say); })) {
    CHECK(end.said == "");
    CHECK(end.exit_code == 0);
  }
}

}  // namespace drun

// Ranks as threads: enough to show that headers, archive and dependencies of the package are whole.
#include <drun/process_group.h>
#include <drun/record.h>

#include <iostream>
#include <thread>
#include <vector>

int main() {
  return drun::record([] {
    const auto store = drun::make_memory_key_store();
    std::vector<int> sums(RANKS);
    std::vector<int> codes(RANKS);
    std::vector<std::thread> ranks;
    for (std::size_t rank = 0; rank < RANKS; ++rank) {
      ranks.emplace_back([&, rank] {
        codes[rank] = drun::record([&] {
          drun::InitOptions options;
          options.rank = static_cast<int>(rank);
          options.world_size = RANKS;
          options.store = store;
          drun::ProcessGroup group = drun::ProcessGroup::connect(options);
          std::vector<int> one{group.rank() + 1};
          group.all_reduce(one);
          sums[rank] = one[0];
        });
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (std::size_t rank = 0; rank < RANKS; ++rank) {
      if (codes[rank] != 0 || sums[rank] != RANKS * (RANKS + 1) / 2) return 1;
    }
    std::cout << RANKS << " ranks agree\n";
    return 0;
  });
}

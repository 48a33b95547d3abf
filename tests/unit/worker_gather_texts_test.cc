#include <thread>

#include "tests/support/catch.h"
#include "worker_lib/mesh/gather_texts.h"

namespace drun::test {
namespace {

using std::chrono::seconds;

BackendContext context_of(int rank, int size, const std::shared_ptr<KeyStore>& store) {
  BackendContext context;
  context.rank = rank;
  context.size = size;
  context.store = store;
  context.deadline = Deadline::clock::now() + seconds(20);
  return context;
}

}  // namespace

TEST_CASE("every rank gets the texts of all, whatever bytes they have") {
  const std::vector<std::string> texts{"10.0.0.1 4711", "", std::string("12:\n\0:3", 7)};
  const std::shared_ptr<KeyStore> store = make_memory_key_store();
  std::vector<std::vector<std::string>> got(3);
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      got[rank] =
          worker::gather_texts(context_of(static_cast<int>(rank), 3, store), "here", texts[rank]);
    });
  for (std::thread& rank : ranks) rank.join();
  for (const std::vector<std::string>& each : got) CHECK(each == texts);
  for (const char* key : {"here/0", "here/1", "here/2", "here/all", "here/readers"})
    CHECK_FALSE(store->has(key, seconds(1)));
}

TEST_CASE("a value of the store that is not the texts of all ranks is refused by name") {
  // Texts with their sizes before them.
  const std::string ab("\2\0\0\0ab", 6);
  const std::string value = GENERATE_COPY(from_range(std::vector<std::string>{
      "", ab, ab + std::string("\11\0\0\0short", 9), "x" + ab, ab + "\377\377\377\377cd"}));
  const std::shared_ptr<KeyStore> store = make_memory_key_store();
  store->set("here/all", value, seconds(1));
  CHECK_THROWS_WITH(worker::gather_texts(context_of(1, 2, store), "here", "mine"),
                    "the store's value here/all is not the addresses of 2 ranks");
}

}  // namespace drun::test

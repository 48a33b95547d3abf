#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <thread>
#include <vector>

#include "drun/error.h"
#include "tests/support/catch.h"
#include "tests/support/in_rank.h"
#include "tests/support/machine.h"
#include "tests/support/process.h"
#include "tests/support/ranks.h"
#include "worker_lib/store/file_key_store.h"

namespace drun::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::check_exited;
using test::error_of;
using test::RankEnd;
using test::Say;
using testing::TemporaryDirectory;

std::shared_ptr<KeyStore> open_at(const std::string& path, int rank, int size) {
  return open_file_key_store({.path = path, .rank = rank, .size = size}, seconds(20));
}

// Leaves a file behind as a job does whose ranks were killed: `how_many` of two ranks had opened
// it.
void leave_behind(const std::string& path, int how_many) {
  const auto ends = test::run_ranks({.size = how_many}, [&](int rank, const Say&) {
    const auto store = open_at(path, rank, 2);
    store->set("address/" + std::to_string(rank), "an old one", seconds(5));
    kill(getpid(), SIGKILL);
  });
  for (const RankEnd& end : ends) REQUIRE(end.signal == SIGKILL);
}

}  // namespace

TEST_CASE("ranks share a file, and the last one removes it") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("store");
  check_exited(test::run_ranks({.size = 4}, [&](int rank, const Say&) {
    const auto store = open_at(path, rank, 4);
    store->set("rank/" + std::to_string(rank),
               std::string(static_cast<std::size_t>(rank) * 1000, 'x'), seconds(20));
    for (int other = 0; other < 4; ++other) {
      const std::string value = store->get("rank/" + std::to_string(other), seconds(20));
      if (value.size() != static_cast<std::size_t>(other) * 1000)
        throw std::runtime_error("wrong value");
    }
  }));
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("a file can be used again after all ranks have closed it") {
  const TemporaryDirectory directory;
  for (int run = 0; run < 3; ++run) {
    const auto store = open_at(directory.file("store"), 0, 1);
    CHECK_FALSE(store->has("from before", seconds(1)));
    store->set("from before", "", seconds(1));
  }
}

TEST_CASE("concurrent additions and exchanges by several processes are never lost") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("store");
  check_exited(test::run_ranks({.size = 4}, [&](int rank, const Say&) {
    const auto store = open_at(path, rank, 4);
    for (int i = 0; i < 100; ++i) store->add("sum", rank + 1, seconds(20));
    const std::string mine = std::to_string(rank);
    const std::string winner = store->compare_set("winner", "", mine, seconds(20));
    store->set("winner/" + mine, winner, seconds(20));
    for (int other = 0; other < 4; ++other) {
      if (store->get("winner/" + std::to_string(other), seconds(20)) != winner) {
        throw std::runtime_error("two winners");
      }
    }
    if (store->get("sum", seconds(1)) != "1000") throw std::runtime_error("lost an addition");
  }));
}

TEST_CASE("ranks can be threads of one process") {
  const TemporaryDirectory directory;
  std::vector<std::thread> ranks;
  std::vector<std::string> errors(3);
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      errors[static_cast<std::size_t>(rank)] = error_of([&] {
        const auto store = open_at(directory.file("store"), rank, 3);
        for (int i = 0; i < 50; ++i) store->add("sum", 1, seconds(20));
        store->set(std::to_string(rank), "", seconds(20));
        store->wait({"0", "1", "2"}, seconds(20));
        if (store->get("sum", seconds(1)) != "150") throw std::runtime_error("lost an addition");
      });
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const std::string& error : errors) CHECK(error == "no error");
}

TEST_CASE("a stale store file is reported on every rank at once") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("store");
  leave_behind(path, GENERATE(1, 2));
  const auto ends = test::run_ranks({.size = 2}, [&](int rank, const Say& say) {
    say(error_of([&] {
      const auto store = open_at(path, rank, 2);
      store->set("address/" + std::to_string(rank), "a new one", seconds(20));
      store->get("address/never", seconds(20));
    }));
  });
  check_exited(ends);
  for (const RankEnd& end : ends) {
    CHECK_THAT(end.said, ContainsSubstring("store: the file " + path + " is left from an earlier"));
    CHECK_THAT(end.said, ContainsSubstring("remove it"));
    CHECK(end.took < test::scaled(seconds(10)));
  }
}

TEST_CASE("a file of a job with another size is rejected") {
  const TemporaryDirectory directory;
  const auto store = open_at(directory.file("store"), 0, 3);
  CHECK_THAT(error_of([&] { open_at(directory.file("store"), 1, 2); }),
             ContainsSubstring("left from an earlier run, or another job uses it"));
}

TEST_CASE("the error about a missing key at the deadline names it") {
  const TemporaryDirectory directory;
  const auto store = open_at(directory.file("store"), 0, 2);
  store->set("here", "", seconds(1));
  CHECK_THAT(
      error_of([&] {
        store->wait({"here", "not here"}, milliseconds(60));
      }),
      ContainsSubstring("timeout: no rank set \"not here\"") && ContainsSubstring("within 60 ms"));
}

TEST_CASE("a value reaches a rank that is waiting for it") {
  const TemporaryDirectory directory;
  const auto waiting = open_at(directory.file("store"), 0, 2);
  const auto setting = open_at(directory.file("store"), 1, 2);
  std::string got;
  std::thread waiter([&] { got = waiting->get("key", seconds(20)); });
  // A wait does not block the same rank's writes.
  waiting->set("other", "", seconds(20));
  setting->get("other", seconds(20));
  setting->set("key", "value", seconds(20));
  waiter.join();
  CHECK(got == "value");
}

TEST_CASE("a writer's incomplete record is overwritten") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("store");
  const auto first = open_at(path, 0, 2);
  first->set("a", "1", seconds(1));
  testing::write_file(path, testing::read_file(path) + "half a rec");
  const auto second = open_at(path, 1, 2);
  second->set("b", "2", seconds(1));
  CHECK(first->get("b", seconds(1)) == "2");
  CHECK(second->get("a", seconds(1)) == "1");
}

TEST_CASE("a file of another format is rejected and left unchanged") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("letter");
  const std::string text = GENERATE("Dear all,", "Dear all, this is longer than a header is.");
  testing::write_file(path, text);
  CHECK_THAT(error_of([&] { open_at(path, 0, 2); }),
             ContainsSubstring("is not a file of drun's store"));
  CHECK(testing::read_file(path) == text);
  CHECK_THAT(error_of([&] { open_at(directory.file("no/such"), 0, 2); }),
             ContainsSubstring("cannot open the store's file"));
}

TEST_CASE("a file with a damaged byte anywhere in its header is rejected") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("store");
  const auto first = open_at(path, 0, 3);
  first->set("key", "value", seconds(1));
  const std::string good = testing::read_file(path);
  int refused = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0xFF);
    testing::write_file(path, bad);
    const std::string error = error_of([&] { open_at(path, 1, 3)->has("key", seconds(1)); });
    if (error != "no error") ++refused;
  }
  CHECK(refused >= 24);  // at least the whole header; bytes of keys and values are not checked
  testing::write_file(path, good);
}

TEST_CASE("a value that does not fit the file is rejected without any change") {
  const TemporaryDirectory directory;
  const auto store = open_at(directory.file("store"), 0, 1);
  CHECK_THAT(error_of([&] { store->set("big", std::string(17 << 20, 'x'), seconds(5)); }),
             ContainsSubstring("a value of 17825792 bytes are too much"));
  CHECK_FALSE(store->has("big", seconds(1)));
}

TEST_CASE("a sum beyond the largest integer wraps around, as in the store's server") {
  const TemporaryDirectory directory;
  const auto store =
      GENERATE(true, false) ? open_at(directory.file("store"), 0, 1) : make_memory_key_store();
  store->set("n", "9223372036854775807", seconds(1));
  CHECK(store->add("n", 1, seconds(1)) == std::numeric_limits<std::int64_t>::min());
  CHECK(store->get("n", seconds(1)) == "-9223372036854775808");
}

TEST_CASE("an addition that does not fit the file leaves no key behind") {
  const TemporaryDirectory directory;
  const auto store = open_at(directory.file("store"), 0, 1);
  const std::string key(100 << 10, 'k');
  CHECK_THAT(error_of([&] { store->add(key, 1, seconds(1)); }), ContainsSubstring("are too much"));
  CHECK_FALSE(store->has(key, seconds(1)));
}

TEST_CASE("a lock that is never released ends the wait at the deadline") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("store");
  const auto store = open_at(path, 0, 2);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct flock whole {};
  whole.l_type = F_WRLCK;
  REQUIRE(fcntl(fd, F_OFD_SETLK, &whole) == 0);
  CHECK_THAT(error_of([&] { store->set("key", "", milliseconds(50)); }),
             ContainsSubstring("timeout: another process keeps the lock"));
  close(fd);
  store->set("key", "", seconds(5));
}

}  // namespace drun::worker

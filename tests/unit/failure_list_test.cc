#include "rendezvous/ranks/failure_list.h"

#include <algorithm>

#include "rendezvous/protocol/control_wire.h"
#include "tests/support/catch.h"
#include "tests/support/messages.h"

namespace drun::rendezvous {
namespace {

FailureList::Time at(int milliseconds) {
  return FailureList::Time(std::chrono::milliseconds(milliseconds));
}

std::vector<int> ranks(const FailureList& list) {
  std::vector<int> ranks;
  for (const Failure& failure : list.failures()) ranks.push_back(failure.rank);
  return ranks;
}

}  // namespace

TEST_CASE("failures are sorted by time, then by rank, in any order of arrival") {
  struct Arrival {
    int rank = 0;
    int moment = 0;
  };
  std::vector<Arrival> arrivals{{1, 20}, {2, 10}, {3, 10}, {4, 30}};
  do {
    FailureList list;
    for (const Arrival& each : arrivals) list.add(test::full_failure(each.rank), at(each.moment));
    CHECK(ranks(list) == std::vector<int>{2, 3, 1, 4});
    CHECK(list.first().rank == 2);
  } while (std::next_permutation(
      arrivals.begin(), arrivals.end(),
      [](const Arrival& one, const Arrival& other) { return one.rank < other.rank; }));
}

TEST_CASE("a full report replaces the brief one of the same rank and keeps its earlier time") {
  FailureList list;
  Failure brief = test::full_failure(1);
  brief.traceback.clear();
  list.add(brief, at(5));
  list.add(test::full_failure(2), at(6));
  list.add(test::full_failure(1), at(9));
  CHECK(ranks(list) == std::vector<int>{1, 2});
  CHECK(list.first().traceback == "Traceback ...");
  list.add(test::full_failure(2), at(1));
  CHECK(ranks(list) == std::vector<int>{2, 1});
}

TEST_CASE(
    "beyond the limit the latest failures are only counted, and the first is always complete") {
  FailureList list;
  std::vector<int> order(3000);
  for (int i = 0; i < 3000; ++i) order[static_cast<std::size_t>(i)] = (i * 7) % 3000;
  for (const int rank : order) {
    Failure failure = test::full_failure(rank);
    if (rank == 0) failure.traceback = std::string(32'000, 'x');
    list.add(failure, at(rank));
  }
  CHECK(list.first().traceback.size() == 32'000);
  const std::vector<int> kept = ranks(list);
  CHECK(std::is_sorted(kept.begin(), kept.end()));
  CHECK(kept.back() == static_cast<int>(kept.size()) - 1);
  CHECK(kept.size() + list.left_out() == 3000);
  CHECK(kept.size() > 100);
  rendezvous::Stopped stopped;
  for (const Failure& failure : list.failures()) stopped.failures.push_back({failure, {}});
  CHECK(encode(MemberMessage(stopped)).size() < kFrameLimitBytes);
}

}  // namespace drun::rendezvous

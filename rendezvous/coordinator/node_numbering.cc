#include "rendezvous/coordinator/node_numbering.h"

#include <algorithm>
#include <compare>
#include <numeric>

namespace drun::rendezvous {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Removes the run of digits at the front, and returns it without leading zeros.
std::string_view take_number(std::string_view& text) {
  const std::size_t end = std::min(text.size(), text.find_first_not_of("0123456789"));
  std::string_view digits = text.substr(0, end);
  text.remove_prefix(end);
  digits.remove_prefix(std::min(digits.size(), digits.find_first_not_of('0')));
  return digits;
}

std::strong_ordering compare_naturally(std::string_view left, std::string_view right) {
  while (!left.empty() && !right.empty()) {
    if (is_digit(left.front()) && is_digit(right.front())) {
      const std::string_view one = take_number(left);
      const std::string_view other = take_number(right);
      if (const auto by_length = one.size() <=> other.size(); std::is_neq(by_length))
        return by_length;
      if (const auto by_digits = one.compare(other); by_digits != 0) return by_digits <=> 0;
      continue;
    }
    if (left.front() != right.front()) return left.front() <=> right.front();
    left.remove_prefix(1);
    right.remove_prefix(1);
  }
  return left.size() <=> right.size();
}

bool has_number(const Applicant& applicant) {
  return std::any_of(applicant.host.begin(), applicant.host.end(), is_digit);
}

// The order of all applicants as if they were new.
std::vector<std::size_t> newcomers_order(std::span<const Applicant> applicants, RankOrder order) {
  const bool is_natural = order == RankOrder::Natural ||
                          (order == RankOrder::Endpoint &&
                           std::all_of(applicants.begin(), applicants.end(), has_number));
  std::vector<std::size_t> sorted(applicants.size());
  std::iota(sorted.begin(), sorted.end(), std::size_t{0});
  std::sort(sorted.begin(), sorted.end(), [&](std::size_t left, std::size_t right) {
    const Applicant& one = applicants[left];
    const Applicant& other = applicants[right];
    if (order == RankOrder::Endpoint && one.is_coordinator != other.is_coordinator)
      return one.is_coordinator;
    if (!is_natural) return one.arrival < other.arrival;
    if (const auto by_name = compare_naturally(one.host, other.host); std::is_neq(by_name))
      return std::is_lt(by_name);
    return one.slot != other.slot ? one.slot < other.slot : one.arrival < other.arrival;
  });
  return sorted;
}

// Node ranks. Each is assigned once.
class Seats {
 public:
  explicit Seats(std::size_t count) : taken_(count) {}
  bool take(std::optional<int> wanted, std::size_t applicant) {
    if (!wanted || *wanted < 0 || static_cast<std::size_t>(*wanted) >= taken_.size()) return false;
    auto& seat = taken_[static_cast<std::size_t>(*wanted)];
    if (seat) return false;
    seat = applicant;
    return true;
  }
  void take_next(std::size_t applicant) {
    while (taken_[next_]) ++next_;
    taken_[next_] = applicant;
  }
  std::vector<std::size_t> order() const {
    std::vector<std::size_t> order;
    for (const auto& seat : taken_) order.push_back(seat.value_or(0));
    return order;
  }

 private:
  std::vector<std::optional<std::size_t>> taken_;
  std::size_t next_ = 0;
};

}  // namespace

bool is_naturally_less(std::string_view left, std::string_view right) {
  return std::is_lt(compare_naturally(left, right));
}

std::vector<std::size_t> number_nodes(std::span<const Applicant> applicants, RankOrder order) {
  Seats seats(applicants.size());
  std::vector<std::size_t> left = newcomers_order(applicants, order);
  const auto seat = [&](bool stays) {
    std::erase_if(left, [&](std::size_t each) {
      const Applicant& applicant = applicants[each];
      return applicant.stays == stays && seats.take(applicant.last_rank, each);
    });
  };
  seat(true);
  seat(false);
  std::stable_sort(left.begin(), left.end(), [&](std::size_t one, std::size_t other) {
    const Applicant& first = applicants[one];
    const Applicant& second = applicants[other];
    if (first.stays != second.stays) return first.stays;
    return first.stays && first.last_rank < second.last_rank;
  });
  for (const std::size_t each : left) seats.take_next(each);
  return seats.order();
}

}  // namespace drun::rendezvous

// core. The answer of NCCL's RAS service as JSON (NCCL 2.28.7 and later).
//
// Shape:   take() as bytes come; the report grows, and is whole once is_complete().
// Fields:  communicators[]: hash, size, ranks[]: rank, host, pid, collective_counts{};
//          missing_ranks[]: rank, host, pid, status: unresponsive, considered_dead. Others are
//          passed over, and so is what is not of the type that it should be.
// Owner:   a value in a fixed place; the report must outlive it.   Thread: any, one at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent/ras/json_scanner.h"
#include "agent/ras/report.h"

namespace drun::agent::ras {

class JsonAnswer final : JsonScanner::Listener {
 public:
  explicit JsonAnswer(Report& report) : scanner_(*this), report_(report) {}
  JsonAnswer(const JsonAnswer&) = delete;
  JsonAnswer& operator=(const JsonAnswer&) = delete;

  // False: it is no such answer, or too large.
  bool take(std::string_view bytes) { return scanner_.take(bytes) && !is_too_large_; }
  bool is_complete() const { return scanner_.is_complete() && has_communicators_; }

 private:
  enum class Place { Top, Communicators, Communicator, Ranks, Rank, Counts, Missing, Other };

  void on_open(std::string_view key, bool is_list) override;
  void on_close() override;
  void on_value(std::string_view key, std::string_view value) override;
  Place place_of(std::string_view key, bool is_list) const;
  void value_of_rank(std::string_view key, std::string_view value);
  void end_rank();

  JsonScanner scanner_;
  Report& report_;
  std::vector<Place> places_{};
  bool has_communicators_ = false;
  bool is_too_large_ = false;
  std::size_t ranks_ = 0;

  // The rank that is being read; in `missing_ranks` also how it is lost.
  Rank rank_{};
  bool is_missing_ = false;
  bool is_unresponsive_ = false;
  bool is_dead_ = false;
};

}  // namespace drun::agent::ras

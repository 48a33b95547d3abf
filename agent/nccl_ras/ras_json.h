// core. Parses the JSON report of NCCL's RAS service (NCCL 2.28.7 and later) as it arrives.
//
// Fields:  communicators[]: hash, size, ranks[]: rank, host, pid, collective_counts{};
//          missing_ranks[]: rank, host, pid, status: unresponsive, considered_dead. Other fields,
//          and fields of the wrong type, are ignored.
// Owner:   not movable; the report must outlive it.   Thread: any, one at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "agent/nccl_ras/ras_report.h"

namespace drun::agent::ras {

// --- Incremental JSON scanner
//
// Takes JSON in pieces, cut anywhere, and reports its content as it arrives; keeps nothing. Ignores
// commas and colons, because NCCL 2.28.7 and 2.28.9 omit a comma if ranks are missing, which is
// just when it matters. Rejects more than 32 levels and strings above 256 bytes. The listener must
// outlive the scanner.

class JsonScanner {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // `key`: the key in the enclosing object; empty in a list.
    virtual void on_open(std::string_view key, bool is_list) = 0;
    virtual void on_close() = 0;
    // A string without quotes, or the text of a number or word.
    virtual void on_value(std::string_view key, std::string_view value) = 0;
  };

  explicit JsonScanner(Listener& listener) : listener_(listener) {}

  // False if the text is not JSON; the rest is then ignored.
  bool take(std::string_view bytes);

  // The outermost value has been closed.
  bool is_complete() const { return is_complete_; }

 private:
  enum class In { Between, String, Escape, Word };

  bool step(char c);
  bool step_between(char c);
  bool step_string(char c);
  bool open(bool is_list);
  bool close(bool is_list);
  bool end_text(bool is_string);

  Listener& listener_;
  In in_ = In::Between;
  std::vector<bool> are_lists_{};  // of the open values, innermost last
  std::string text_{};
  std::string key_{};
  bool has_key_ = false;
  bool is_complete_ = false;
  bool is_broken_ = false;
};

// --- The answer

class JsonAnswer final : JsonScanner::Listener {
 public:
  explicit JsonAnswer(Report& report) : scanner_(*this), report_(report) {}
  JsonAnswer(const JsonAnswer&) = delete;
  JsonAnswer& operator=(const JsonAnswer&) = delete;

  // False if the answer is invalid or too large.
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

  // The rank being read; in `missing_ranks` also its status.
  Rank rank_{};
  bool is_missing_ = false;
  bool is_unresponsive_ = false;
  bool is_dead_ = false;
};

}  // namespace drun::agent::ras

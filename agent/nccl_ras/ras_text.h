// core. Parses the text report of NCCL's RAS service (NCCL 2.24 and later), line by line.
//
// Content: sizes of communicators, in a table by groups; processes that do not respond or are dead;
//          and, if ranks of a communicator have launched different numbers of operations, the
//          number of ranks per count, with rank, host and pid of those in the minority.
// Errors:  unknown lines are ignored.
// Owner:   not movable; the report must outlive it.   Thread: any, one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "agent/nccl_ras/ras_report.h"

namespace drun::agent::ras {

class TextAnswer {
 public:
  explicit TextAnswer(Report& report) : report_(report) {}
  TextAnswer(const TextAnswer&) = delete;
  TextAnswer& operator=(const TextAnswer&) = delete;

  // `line`: without its line end. False if the answer is too large.
  bool take(std::string_view line);

  // True once the last part has begun, because that part has no end mark.
  bool is_complete() const { return is_last_part_; }

 private:
  enum class Part { None, Groups, Missing, Dead, Counts };

  bool take_heading(std::string_view line);
  void take_group(std::string_view line);
  void take_process(std::string_view line);
  void take_count(std::string_view line);
  void enter(std::string_view heading);
  void add_rank(int rank, const Process& process, std::uint64_t count);

  Report& report_;
  Part part_ = Part::None;
  bool is_last_part_ = false;
  std::map<int, int> sizes_{};               // of communicators, by group
  std::map<std::string, std::size_t> at_{};  // in the report, by "#group-number (hash)"
  std::size_t communicator_ = 0;             // index of the one that the current lines describe
  std::optional<std::size_t> kind_{};
  std::optional<std::uint64_t> count_{};  // of the ranks listed next
  std::size_t ranks_ = 0;
};

}  // namespace drun::agent::ras

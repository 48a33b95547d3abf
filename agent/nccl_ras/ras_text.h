// core. The answer of NCCL's RAS service as text for people (NCCL 2.24 and later), line by line.
//
// Told:    sizes of communicators, in a table by groups; processes that do not answer or are dead;
//          and, where ranks of a communicator have launched different numbers of operations, how
//          many ranks stand where, with rank, host and pid of those in the minority.
// Lenient: a line that is not understood is passed over.
// Owner:   a value in a fixed place; the report must outlive it.   Thread: any, one at a time.
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

  // Without its end of line. False: the answer is too large.
  bool take(std::string_view line);

  // Its last part has begun; that part has no mark at its end.
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
  std::size_t communicator_ = 0;             // that lines speak of, where there is any
  std::optional<std::size_t> kind_{};
  std::optional<std::uint64_t> count_{};  // of the ranks that are named next
  std::size_t ranks_ = 0;
};

}  // namespace drun::agent::ras

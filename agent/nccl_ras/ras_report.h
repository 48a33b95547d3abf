// core. A report of NCCL's RAS service, and the parsers of its two formats: a job's communicators,
// the number of operations that each of their ranks has launched, and the processes that do not
// respond.
//
// Ranks:   within a communicator, 0 to size-1. A process is identified by host address and pid.
// Counts:  operations that a rank has launched, per kind. The text format has them only if ranks
//          differ, and for large groups only the number of ranks with each count.
// Source:  NVIDIA/nccl, src/ras/client_support.cc of 2.24.3 and 2.28.9, and its user guide's "RAS".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace drun::agent::ras {

// NCCL has five kinds of operations.
constexpr std::size_t kMostKinds = 8;
// In all communicators together; an answer with more is rejected.
constexpr std::size_t kMostRanks = std::size_t{1} << 17;
constexpr std::size_t kMostLost = 1024;

struct Process {
  int pid = 0;         // 0: not known
  std::string host{};  // a numeric address; empty: not known
  bool operator==(const Process&) const = default;
};

struct Rank {
  int rank = 0;
  Process process{};
  std::array<std::optional<std::uint64_t>, kMostKinds> counts{};  // by kind; absent: not reported
  bool operator==(const Rank&) const = default;
};

// Ranks that are only counted, not listed.
struct RankGroup {
  std::size_t kind = 0;
  std::uint64_t count = 0;
  int ranks = 0;
  bool operator==(const RankGroup&) const = default;
};

struct Communicator {
  std::string hash{};
  int size = 0;  // 0: not known
  std::vector<Rank> ranks{};
  std::vector<RankGroup> crowds{};
  bool operator==(const Communicator&) const = default;
};

struct Lost {
  Process process{};
  bool is_dead = false;  // permanently; false: it did not respond this time
  bool operator==(const Lost&) const = default;
};

struct Report {
  std::vector<std::string> kinds{};  // "AllReduce"; at most kMostKinds
  std::vector<Communicator> communicators{};
  std::vector<Lost> lost{};
  bool operator==(const Report&) const = default;
};

// The index of that kind in report.kinds. Adds it if there is room.
std::optional<std::size_t> kind_of(Report& report, const std::string& name);

// Adds a process once, up to kMostLost processes. If reports differ, is_dead is set.
void add_lost(Report& report, const Lost& lost);

// --- The JSON format (NCCL 2.28.7 and later), parsed as it arrives
//
// Fields:  communicators[]: hash, size, ranks[]: rank, host, pid, collective_counts{};
//          missing_ranks[]: rank, host, pid, status: unresponsive, considered_dead. Other fields,
//          and fields of the wrong type, are ignored.
// Owner:   not movable; the report must outlive it.

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

// --- The text format (NCCL 2.24 and later), parsed line by line
//
// Content: sizes of communicators, in a table by groups; processes that do not respond or are dead;
//          and, if ranks of a communicator have launched different numbers of operations, the
//          number of ranks per count, with rank, host and pid of those in the minority.
// Errors:  unknown lines are ignored.
// Owner:   not movable; the report must outlive it.

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

// --- One query to the service, and its answer
//
// The protocol is lines of text over TCP, at NCCL_RAS_ADDR (default: localhost:28028), where every
// process of the node listens. All lines are sent at once. The service answers each command with
// one line ("OK", or "ERROR: ..." for an unknown command), then sends the report and closes the
// connection. The report is JSON since NCCL 2.28.7; older versions do not know that format and send
// text.

// TIMEOUT is the time in seconds for which the service waits for processes that do not respond.
constexpr std::string_view kQuestion =
    "CLIENT PROTOCOL 2\nTIMEOUT 2\nSET FORMAT json\nVERBOSE STATUS\n";

constexpr std::size_t kMostAnswerBytes = std::size_t{64} << 20;

class Answer {
 public:
  Answer() : json_(report_), text_(report_) {}
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  // Takes the next bytes of the answer, cut anywhere. False if the answer is invalid or too large;
  // the rest is then ignored.
  bool take(std::string_view bytes);

  // Absent if the answer is incomplete.
  std::optional<Report> finish();

 private:
  bool take_line(std::string_view line);

  Report report_{};
  JsonAnswer json_;
  TextAnswer text_;
  std::string line_{};
  bool is_greeted_ = false;
  bool is_json_ = false;
  bool is_broken_ = false;
  std::size_t bytes_ = 0;
};

}  // namespace drun::agent::ras

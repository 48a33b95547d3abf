// core. The lines of a log file as `drun logs` prints them: those that match, behind a label.
#pragma once

#include <regex.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace drun {

// A POSIX extended regular expression. Works on bytes; a match may be anywhere in the line.
class LinePattern {
 public:
  // `text` is valid: parse_pattern() (launcher/cli/option_values.h) has checked it.
  explicit LinePattern(const std::string& text);
  bool matches(std::string_view line) const;

 private:
  struct Free {
    void operator()(regex_t* compiled) const;
  };
  std::unique_ptr<regex_t, Free> compiled_{new regex_t{}};
};

class LogLines {
 public:
  // A longer line is printed in pieces, each on a separate line.
  static constexpr std::size_t kLongestLineBytes = std::size_t{1} << 20;

  // `pattern` may be null, and must outlive the object.
  LogLines(std::string label, const LinePattern* pattern);

  // Appends whole lines to `out` and keeps the rest.
  void take(std::string_view bytes, std::string& out);
  // A rest without a line end is a line, too.
  void end(std::string& out);

 private:
  void put_held(std::string& out);
  void put(std::string_view line, std::string& out) const;

  std::string label_;
  const LinePattern* pattern_;
  std::string held_;
};

// Reads up to `bytes` bytes at `offset`; fewer only at the end of the file.
using ReadAt = std::function<std::string(std::uint64_t offset, std::size_t bytes)>;

struct TailWish {
  std::size_t lines = 0;
  const LinePattern* pattern = nullptr;  // only lines that match count
};

// Where the last lines of a file of `size_bytes` begin. An unfinished last line counts.
std::uint64_t tail_offset(const ReadAt& read, std::uint64_t size_bytes, const TailWish& wish);

}  // namespace drun

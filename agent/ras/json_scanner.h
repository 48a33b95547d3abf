// core. JSON in pieces, cut anywhere: what is in it, as it comes, with nothing kept.
//
// Lenient: commas and colons are passed over. NCCL 2.28.7 and 2.28.9 leave out a comma where ranks
//          are missing, just when it matters.
// Limits:  32 levels, strings of 256 bytes; what is beyond is no JSON of ours.
// Owner:   a value, with its listener outliving it.   Thread: any, one at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace drun::agent::ras {

class JsonScanner {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // `key`: in the object around it; empty in a list.
    virtual void on_open(std::string_view key, bool is_list) = 0;
    virtual void on_close() = 0;
    // A string without its quotes, or a number or word as it stands.
    virtual void on_value(std::string_view key, std::string_view value) = 0;
  };

  explicit JsonScanner(Listener& listener) : listener_(listener) {}

  // False: it is no JSON, and nothing more is heard.
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
  std::vector<bool> are_lists_{};  // the open ones, the innermost last
  std::string text_{};
  std::string key_{};
  bool has_key_ = false;
  bool is_complete_ = false;
  bool is_broken_ = false;
};

}  // namespace drun::agent::ras

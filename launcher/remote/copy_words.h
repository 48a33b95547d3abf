// core. The words between the login script of a host where drun is missing
// (launcher/plan/remote_command.h) and the starter, or relay, that copies its own drun there.
//
//   script -> starter  "@drun want MACHINE [VERSION]"  neither path has this version. MACHINE is
//                      that of uname -m; VERSION: what another drun there says that it is
//   starter -> script  "@drun copy BYTES SHA256", or "@drun refuse REASON". The script has ignored
//                      all that it was sent before
//   script -> starter  "@drun send": its cache has no such copy; BYTES bytes are sent
//   script -> starter  "@drun start": the copy is executed next, and all that the agent is to read
//                      is sent again
//
// Reader:  finds the words among the text of the login, which may end without a newline.
// Errors:  none; what is no word is text.   Owner: values.   Thread: any.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <variant>

namespace drun::hosts {

struct CopyWanted {
  std::string machine{};
  std::string installed{};  // empty: there is none
  bool operator==(const CopyWanted&) const = default;
};
struct CopyRequested {
  bool operator==(const CopyRequested&) const = default;
};
struct CopyStarts {
  bool operator==(const CopyStarts&) const = default;
};
using CopyWord = std::variant<CopyWanted, CopyRequested, CopyStarts>;

std::string copy_line(std::size_t bytes, std::string_view hash);
std::string refuse_line(std::string_view reason);

class CopyWords {
 public:
  struct Listener {
    std::function<void(const CopyWord&)> on_word;
    std::function<void(std::string_view)> on_text;  // all else, in any pieces
  };

  // Holds back at most one word.
  void take(std::string_view bytes, const Listener& listener);
  void end_of_stream(const Listener& listener);

 private:
  std::string held_;
};

}  // namespace drun::hosts

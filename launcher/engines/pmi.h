// edge. PMI-1, as Hydra speaks it to each process that it starts: one text from rank 0 to all.
//
// Shape:   every rank calls it once, rank 0 with the text; each gets that text. Lines of the form
//          "cmd=put kvsname=kvs_1 key=k value=v\n" over the inherited descriptor PMI_FD.
// Owner:   `fd` stays the caller's; workers do not inherit it.
// Thread:  any; waits until all ranks have come, at most `limit` for each answer.
// Errors:  Refused (what answers is not PMI-1, or says no), Timeout, Closed, System.
// Source:  MPICH's src/pmi, the protocol's version 1.1.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"

namespace drun::engines {

// A text has no blanks, and at most this many bytes: servers promise no more.
inline constexpr std::size_t kMostPmiBytes = 512;

// Core: what is asked, and what the answers mean. No descriptor in it.
class PmiMeeting {
 public:
  // `told`: rank 0's text.
  explicit PmiMeeting(std::optional<std::string> told);

  // The line to be sent now; until it is over.
  std::string request() const;
  // The next bytes of the answer. True: it is whole, and request() is the next one's, or it is
  // over. Errors: Refused; it is no answer to the request.
  Result<bool> take(std::string_view bytes);
  bool is_over() const { return step_ == Step::Over; }
  // Once it is over.
  const std::string& text() const { return text_; }

 private:
  // An engine takes a process that does not finalize for one that has crashed.
  enum class Step { Init, Space, Put, Barrier, Get, Finalize, Over };

  std::string command() const;
  Result<bool> understand(const std::string& line);

  std::optional<std::string> told_;
  Step step_ = Step::Init;
  std::string read_;
  std::string space_;  // the engine's name for the job's keys
  std::string text_;
};

Result<std::string> meet_by_pmi(int fd, const std::optional<std::string>& told,
                                std::chrono::milliseconds limit);

}  // namespace drun::engines

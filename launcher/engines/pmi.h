// edge. Passes one text from rank 0 to all ranks that an MPI launcher started, by its process
// management interface: PMI-1 or PMIx.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/engines/engine_facts.h"
#include "rendezvous/base/result.h"

namespace drun::engines {

// --- PMI-1, spoken by Hydra with each process that it starts
//
// Messages are lines such as "cmd=put kvsname=kvs_1 key=k value=v\n" on the inherited descriptor
// PMI_FD, which workers do not inherit. See MPICH's src/pmi, protocol version 1.1.

// The limit for a text, which must not contain blanks. Servers guarantee no more.
inline constexpr std::size_t kMostPmiBytes = 512;

// Composes the requests and interprets the answers. Does no I/O.
class PmiMeeting {
 public:
  // `own_text`: the text of rank 0; absent on other ranks.
  explicit PmiMeeting(std::optional<std::string> own_text);

  // The line to send next. Valid until is_over().
  std::string request() const;
  // Takes the next bytes of the answer. Returns true if the answer is complete; request() is then
  // the next one unless is_over(). Errors: Refused, if it does not answer the request.
  Result<bool> take(std::string_view bytes);
  bool is_over() const { return step_ == Step::Over; }
  // Valid if is_over().
  const std::string& text() const { return text_; }

 private:
  // An engine treats a process that exits without finalize as crashed.
  enum class Step { Init, Space, Put, Barrier, Get, Finalize, Over };

  std::string command() const;
  Result<bool> understand(const std::string& line);

  std::optional<std::string> own_text_;
  Step step_ = Step::Init;
  std::string read_;
  std::string space_;  // the engine's name for the job's keys
  std::string text_;
};

Result<std::string> meet_by_pmi(int fd, const std::optional<std::string>& own_text,
                                std::chrono::milliseconds limit);

// --- PMIx (pmix.cc), spoken by Open MPI 5 and other launchers with each process that they start.
// Also reports the number of ranks.
//
// A child process loads the launcher's library, exchanges the text and exits, so that threads and
// descriptors of the library do not stay in this process. The child is killed when this process
// ends. See the PMIx standard, version 2 and later: pmix.h.

inline constexpr const char* kPmixLibrary = "libpmix.so.2";

// Whether drun was built with PMIx's headers.
bool has_pmix();

Result<MeetingResult> meet_by_pmix(const std::optional<std::string>& own_text,
                                   std::chrono::milliseconds limit,
                                   const std::string& library = kPmixLibrary);

}  // namespace drun::engines

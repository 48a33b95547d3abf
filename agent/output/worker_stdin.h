// edge. What workers read on standard input: nothing, drun's own, or, of an agent that --hosts
// started, what the starter reads: it comes over the lifeline, and goes to rank 0 through a pipe.
//
// Terminal: drun's own may be one that the workers read from. The agent leads a session without a
//          controlling terminal (guardian.h), so that no worker is stopped by SIGTTIN.
//
// Flow:    the starter may send as many bytes as room_text() allows, kInputRoomBytes at first;
//          what the pipe takes is room again. A worker that does not read holds up only its input.
// Rounds:  the pipe is one for all rounds in which this node has rank 0: what a worker has not read
//          is there for the next. Its end of file comes after all that was sent.
// Owner:   Agent, with Output, whose lines `tell` puts in; stop() before destruction.
// Thread:  the io_context's only.   Errors: Result of open().
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "agent/process/lifeline.h"
#include "agent/spec.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/job/world.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

inline constexpr std::size_t kInputRoomBytes = std::size_t{256} << 10;

// The control message to the starter: rank 0 is here, and takes that many more bytes.
std::string room_text(std::size_t bytes);
// Absent: another message.
std::optional<std::size_t> parse_room(std::string_view line);
// The line before bytes for rank 0, and the line after the last ones (lifeline.h).
std::string input_line(std::size_t bytes);
inline constexpr std::string_view kInputEnd = "input end\n";

class WorkerStdin final : public Lifeline::Input {
 public:
  WorkerStdin(asio::io_context& io, bool comes_by_lifeline,
              std::function<void(const std::string&)> tell);
  WorkerStdin(const WorkerStdin&) = delete;
  WorkerStdin& operator=(const WorkerStdin&) = delete;

  // The descriptor of that worker, valid until stop().
  Result<int> open(StdinSource source, const World& world, int local_rank);
  void stop();

  void on_input(std::string_view bytes) override;
  void on_input_end() override;

 private:
  Result<int> open_pipe();
  void write();
  void on_written(std::size_t bytes);

  std::function<void(const std::string&)> tell_;
  bool comes_by_lifeline_;
  UniqueFd null_;
  UniqueFd read_end_;
  asio::posix::stream_descriptor write_end_;
  std::string waiting_;
  std::string writing_;  // not touched while it is being written
  bool has_ended_ = false;
};

}  // namespace drun::agent

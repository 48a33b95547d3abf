// edge. The workers' standard input: nothing, drun's own, or, in an agent that --hosts started, the
// launcher's. The latter arrives over the lifeline and goes to rank 0 through a pipe.
//
// Terminal: drun's own input may be a terminal that workers read from. The agent leads a session
//          without a controlling terminal (guardian.h), so no worker is stopped by SIGTTIN.
// Flow:    the launcher may send as many bytes as room_text() allows, kInputRoomBytes at first.
//          Bytes that the pipe accepts are granted again. A worker that does not read delays only
//          its own input.
// Rounds:  one pipe serves all rounds in which this node has rank 0, so input that a worker has not
//          read is available to the next one, unless rank 0 was on another node in between. The end
//          of file follows the last byte sent.
// Owner:   Agent, with Output, whose channel `send` writes to. Call stop() before destruction.
// Thread:  the io_context's only.
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

// The control message to the launcher: rank 0 is on this node and accepts `bytes` more bytes.
std::string room_text(std::size_t bytes);
// Absent if the line is another message.
std::optional<std::size_t> parse_room(std::string_view line);
// The line that precedes bytes for rank 0, and the line that ends the input (lifeline.h).
std::string input_line(std::size_t bytes);
inline constexpr std::string_view kInputEnd = "input end\n";

class WorkerStdin final : public Lifeline::Input {
 public:
  WorkerStdin(asio::io_context& io, bool comes_by_lifeline,
              std::function<void(const std::string&)> send);
  WorkerStdin(const WorkerStdin&) = delete;
  WorkerStdin& operator=(const WorkerStdin&) = delete;

  // The standard input of that worker, valid until stop().
  Result<int> open(StdinSource source, const World& world, int local_rank);
  void stop();

  void on_input(std::string_view bytes) override;
  void on_input_end() override;

 private:
  Result<int> open_pipe();
  void write();
  void on_written(std::size_t bytes);

  std::function<void(const std::string&)> send_;
  bool comes_by_lifeline_;
  UniqueFd null_;
  UniqueFd read_end_;
  asio::posix::stream_descriptor write_end_;
  std::string waiting_;
  std::string writing_;  // unchanged while it is being written
  bool has_ended_ = false;
};

}  // namespace drun::agent

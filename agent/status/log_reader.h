// edge. Answers requests for parts of ranks' log files (log_query.h) with the files of this node.
//
// Blocks:  a file system may hang, so files are read in the log directory's thread. At most
//          kMostLogReads reads wait for it; further requests are rejected.
// Owner:   Agent; the Output must outlive it.   Thread: the io_context's only.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "agent/output/output.h"

namespace drun::agent {

inline constexpr std::size_t kMostLogReads = 64;

class LogReader {
 public:
  // `host`: this node's name, for messages.
  LogReader(Output& output, std::string host) : output_(output), host_(std::move(host)) {}

  // `round`: the latest one. `on_answer` is called once with log_answer(): from here if there is
  // nothing to read, else from the loop; never if the Output is stopped before.
  void read(const std::string& request, int round,
            std::function<void(std::string answer)> on_answer);

 private:
  Output& output_;
  std::string host_;
  std::size_t reads_ = 0;  // that wait for the thread
};

}  // namespace drun::agent

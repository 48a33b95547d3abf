// edge. `--events FILE`: one line for everything that happens, while it happens.
//
// File:    appended to, so that several agents of one machine may share it (a line is one write);
//          made with 0600 when it is not there. A symbolic link is not followed, but below /dev.
//          A pipe or terminal is never waited for: lines that it does not take are lost, which is
//          logged once.
// Owner:   Agent.   Thread: the io_context's only.
// Errors:  open: System, naming the file and the reason. Later ones are logged once.
#pragma once

#include <string>
#include <vector>

#include "agent/event.h"
#include "rendezvous/log.h"
#include "rendezvous/result.h"
#include "rendezvous/unique_fd.h"

namespace drun::agent {

class EventFile {
 public:
  EventFile() = default;  // tells nobody
  static Result<EventFile> open(const std::string& path, EventPlace place, Log log);

  void write(const Event& event);

 private:
  void complain(const std::string& reason);

  UniqueFd file_;
  std::string path_;
  EventPlace place_;
  Log log_;
  bool has_complained_ = false;
};

// A WorkerStarted of each; pid 0: it was not.
void write_started(EventFile& events, const World& world, const std::vector<int>& pids);

}  // namespace drun::agent

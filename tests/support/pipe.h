// A pipe from processes, which blocks.
#pragma once

#include <string>

namespace drun::test {

// A pipe whose ends are close-on-exec.
class Pipe {
 public:
  Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe();
  int writing_end() const { return ends_[1]; }
  void close_writing_end();
  // Closes our writing end, then reads until all other writing ends are closed.
  std::string read_all();
  // Waits for one line (without its newline).
  std::string read_line();

 private:
  int ends_[2] = {-1, -1};
};

}  // namespace drun::test

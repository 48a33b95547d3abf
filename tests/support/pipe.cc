#include "tests/support/pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

namespace drun::test {

Pipe::Pipe() {
  if (pipe2(ends_, O_CLOEXEC) != 0) std::abort();
}

Pipe::~Pipe() {
  close(ends_[0]);
  close_writing_end();
}

void Pipe::close_writing_end() {
  if (ends_[1] >= 0) close(ends_[1]);
  ends_[1] = -1;
}

std::string Pipe::read_all() {
  close_writing_end();
  std::string text;
  char buffer[4096];
  for (ssize_t size = 0; (size = read(ends_[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(size));
  return text;
}

std::string Pipe::read_line() {
  std::string line;
  for (char letter = 0; read(ends_[0], &letter, 1) == 1 && letter != '\n';) line += letter;
  return line;
}

}  // namespace drun::test

#include "tests/standin/nccl_communicator.h"

#include <cstdlib>

namespace standin {

using drun::worker::nccl::kSuccess;
using drun::worker::nccl::kSystemError;

bool is_asked(const char* fault, int* value) {
  const char* text = std::getenv("STANDIN_NCCL_FAULT");
  if (text == nullptr) return false;
  const std::string asked(text);
  const std::size_t equals = asked.find('=');
  if (asked.substr(0, equals) != fault) return false;
  if (value != nullptr && equals != std::string::npos)
    *value = std::atoi(asked.c_str() + equals + 1);
  return true;
}

void connect(Communicator& comm) {
  int extra_ms = 0;
  is_asked("slow_init", &extra_ms);
  for (int i = 0; i < extra_ms && !comm.is_aborted; ++i) comm.nap();
  if (is_asked("bad_init")) {
    comm.state = kSystemError;
    return;
  }
  while (is_asked("absent") && !comm.is_aborted) comm.nap();
  if (comm.is_aborted) return;
  const bool is_last = ++comm.shared->came == comm.size;
  if (is_last) unlink(comm.path.c_str());
  while (comm.shared->came < comm.size && !comm.is_aborted) comm.nap();
  if (!comm.is_aborted) comm.state = kSuccess;
}

}  // namespace standin

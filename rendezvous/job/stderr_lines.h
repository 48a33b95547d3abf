// core. Lines of a program's stderr that are no errors: what libraries write around or after an
// error.
#pragma once

#include <string_view>

namespace drun {

// Without blanks at both ends and PyTorch's "[rank1]:" at the beginning.
std::string_view without_rank_mark(std::string_view line);

// A line that a logger wrote at a level below an error, in one of these formats:
//   PyTorch     [W1127 07:16:02.272876963 ProcessGroupNCCL.cpp:1575] text
//   glog, absl  W1127 07:16:02.272876 1234 file.py:15] text
//   TensorFlow  2026-11-27 07:16:02.272876: W tensorflow/file.cc:15] text
//   Python      WARNING:root:text, and [2026-11-27 07:16:02,272] [WARNING] text
//   NCCL        host:1:2 [0] NCCL INFO text
// or a warning of Python.
bool is_warning(std::string_view line);
// "/x/train.py:3: UserWarning: text". Python prints the source line below it.
bool is_python_warning(std::string_view line);

// A line that PyTorch adds to errors of CUDA and to C++ exceptions.
bool is_note(std::string_view line);

}  // namespace drun

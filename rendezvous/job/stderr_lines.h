// core. Lines of a program's stderr: which report an error, and which only surround one.
//
// Lines are without blanks at both ends and without a rank mark, except where stated.
#pragma once

#include <string_view>

namespace drun {

// Without blanks at both ends and PyTorch's marks at the beginning: "[rank1]:", one or more.
std::string_view without_rank_mark(std::string_view line);

// "ValueError: bad loss", "torch.distributed.DistBackendError: NCCL error in ...", "MemoryError".
bool is_exception_line(std::string_view line);

// Whether the line may be the last one of a traceback: the name of an exception of any form, with
// or without a text: "subprocess.TimeoutExpired: Command ...", "queue.Empty".
bool may_end_traceback(std::string_view line);

// A line that reports the end of a program other than by an exception of Python: the what() of a
// C++ exception, a failed assertion (of the C library, glibc, or a kernel on a GPU), a fatal
// message of glog, "CUDA error", "FATAL", "Fatal Python error", and panics of Go and Rust. O(1):
// looks at the first bytes only.
bool is_fatal_line(std::string_view line);

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

// edge. Reports of a worker to its launcher: the cause of a failure, and its progress.
//
//     int main() {
//       return drun::record([] {
//         drun::ProcessGroup group = drun::init_process_group();
//         ...
//       });
//     }
// An exception that leaves `body` is printed on stderr and written as JSON to the file named by
// TORCHELASTIC_ERROR_FILE, and the result is 1. The JSON has torchrun's format: {"message":
// {"message": "type: text", "extraInfo": {"py_callstack": "...", "timestamp": "seconds"}}}. The
// callstack is the chain of nested exceptions. If the file cannot be written, this is reported on
// stderr. Never throws.
#pragma once

#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

namespace drun {

// Returns what `body` returns, or 1.
int record_exit_code(const std::function<int()>& body) noexcept;

// `body` returns int, or nothing for 0.
template <typename Body>
int record(Body&& body) noexcept {
  if constexpr (std::is_void_v<std::invoke_result_t<Body&>>) {
    return record_exit_code([&body] { return body(), 0; });
  } else {
    return record_exit_code([&body] { return static_cast<int>(body()); });
  }
}

// Appends `step` to the file named by DRUN_PROGRESS_FILE. Under drun, a failure after a step that
// the job has not reached before does not count as a startup failure, and --max-restarts=N/progress
// restores all restarts. Call it from one rank or from all, once per step or less often (it costs
// one write to memory). Has no effect under other launchers, or if the file cannot be written.
// Thread: any.
void show_progress(std::uint64_t step) noexcept;

}  // namespace drun

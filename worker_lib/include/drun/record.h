// edge. Messages from a worker to its launcher: why it failed, and how far it got.
//
//     int main() {
//       return drun::record([] {
//         drun::ProcessGroup group = drun::init_process_group();
//         ...
//       });
//     }
//
// Errors:  an exception ends here: it is printed on stderr, written as JSON to the file named by
//          TORCHELASTIC_ERROR_FILE (torchrun's format: {"message": {"message": "type: text",
//          "extraInfo": {"py_callstack": "...", "timestamp": "seconds"}}}), and the result is 1.
//          The callstack is the chain of nested exceptions. A file that cannot be written is a line
//          on stderr. Never throws.
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

// Adds `step` to the file named by DRUN_PROGRESS_FILE: under drun, a failure after a step that the
// job has not reached before is no startup failure, and --max-restarts=N/progress restores all
// restarts. Call it from one rank or from all, once per step or less often (it costs a write to
// memory). Does nothing under other launchers, and if the file cannot be written.
// Thread: any.
void show_progress(std::uint64_t step) noexcept;

}  // namespace drun

#include "agent/diagnosis/error_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>
#include <utility>

#include "agent/diagnosis/diagnosis.h"
#include "agent/diagnosis/gpu_faults.h"
#include "agent/diagnosis/hang_positions.h"
#include "rendezvous/base/bytes.h"
#include "rendezvous/base/text.h"
#include "rendezvous/job/stderr_lines.h"

namespace drun::agent {
namespace {

constexpr std::size_t kMostReadBytes = std::size_t{24} << 10;  // of one text
constexpr std::size_t kMostReadLines = 400;
constexpr std::size_t kMostCalls = 64;
constexpr std::size_t kMostNamed = 256;

struct KnownText {
  std::string_view text;
  Sign sign;
  bool is_at_begin = false;  // of the line
};

constexpr std::string_view kLostLoader = "DataLoader worker (pid";

// Specific texts first: an error of NCCL may quote one of CUDA. A weak text may also be part of a
// harmless message, and counts only in the error that ended the program.
constexpr std::array kStrongTexts{
    KnownText{"CUDA out of memory", Sign::GpuMemory},
    KnownText{"HIP out of memory", Sign::GpuMemory},
    KnownText{"XPU out of memory", Sign::GpuMemory},
    KnownText{"torch.OutOfMemoryError", Sign::GpuMemory},
    KnownText{"torch.cuda.OutOfMemoryError", Sign::GpuMemory},
    KnownText{"CUDA error: out of memory", Sign::GpuMemory},
    KnownText{"HIP error: out of memory", Sign::GpuMemory},
    KnownText{"CUBLAS_STATUS_ALLOC_FAILED", Sign::GpuMemory},
    KnownText{"Cuda failure 2 'out of memory'", Sign::GpuMemory},
    KnownText{"Cuda failure 'out of memory'", Sign::GpuMemory},
    KnownText{"Failed to CUDA calloc", Sign::GpuMemory},
    KnownText{"cuda failed with error 2 out of memory", Sign::GpuMemory},
    KnownText{"RESOURCE_EXHAUSTED: Out of memory", Sign::GpuMemory},
    KnownText{"CUDA_ERROR_OUT_OF_MEMORY", Sign::GpuMemory},
    KnownText{"cudaErrorMemoryAllocation", Sign::GpuMemory},
    KnownText{"uncorrectable ECC error", Sign::Hardware},
    KnownText{"cudaErrorECCUncorrectable", Sign::Hardware},
    KnownText{"uncorrectable NVLink error", Sign::Hardware},
    KnownText{"GPU has fallen off the bus", Sign::Hardware},
    KnownText{"GPU is lost", Sign::Hardware},
    KnownText{"Unable to determine the device handle for GPU", Sign::Hardware},
    KnownText{"CUDA error: hardware stack error", Sign::Hardware},
    KnownText{"over nvlink or a hardware error", Sign::Hardware},
    KnownText{"[Hardware Error]", Sign::Hardware},
    KnownText{kLostLoader, Sign::DataLoaderWorker},
    KnownText{"Unexpected bus error encountered in worker", Sign::DataLoaderWorker},
    KnownText{"Pin memory thread exited unexpectedly", Sign::DataLoaderWorker},
    KnownText{"DataLoader timed out after", Sign::DataLoaderWait},
    KnownText{"DefaultCPUAllocator: can't allocate memory", Sign::HostMemory},
    KnownText{"DefaultCPUAllocator: not enough memory", Sign::HostMemory},
    KnownText{"std::bad_alloc", Sign::HostMemory},
    KnownText{"oom_kill event", Sign::HostMemory},
    KnownText{"oom-kill event", Sign::HostMemory},
    KnownText{"Detected mismatch between collectives", Sign::Desync},
    KnownText{"Is there a distributed collective mismatch in your code", Sign::Desync},
    KnownText{", this rank receives ", Sign::Desync},
    KnownText{"the ranks disagree about collective number ", Sign::Desync},
    KnownText{"but didn't join collective", Sign::MissingRank},
    KnownText{"failed to pass monitoredBarrier", Sign::MissingRank},
    KnownText{"Watchdog caught collective operation timeout", Sign::Waited},
    KnownText{"to complete. Timed out waiting", Sign::Waited},
    KnownText{"for recv operation to complete", Sign::Waited},
    KnownText{"for send operation to complete", Sign::Waited},
    KnownText{"did not do its part in time", Sign::MissingRank},
    KnownText{"did not do their part in time", Sign::Waited},
    KnownText{" did not come in time", Sign::MissingRank},
    KnownText{" is late, stuck or expects something else", Sign::MissingRank},
    KnownText{"another rank is late, stuck or has made fewer calls", Sign::Waited},
    KnownText{"ncclRemoteError", Sign::PeerLost},
    KnownText{"NCCL communicator was aborted on rank", Sign::PeerLost},
    KnownText{"Connection closed by remote peer", Sign::PeerLost},
    KnownText{"Socket recv failed while polling for opId", Sign::PeerLost},
    KnownText{"Connection closed by peer", Sign::PeerLost},
    KnownText{"Did the remote server shutdown or crash", Sign::PeerLost},
    KnownText{"Application timeout caused pair closure", Sign::PeerLost},
    KnownText{"EADDRINUSE", Sign::PortInUse},
    KnownText{"clients joined", Sign::NoConnection},
    KnownText{"The client socket has timed out after", Sign::NoConnection},
    KnownText{"The client socket has failed to connect", Sign::NoConnection},
    KnownText{"connectFullMesh failed", Sign::NoConnection},
    KnownText{"ModuleNotFoundError: ", Sign::StartUp},
    KnownText{"ImportError: ", Sign::StartUp},
    KnownText{"SyntaxError: ", Sign::StartUp},
    KnownText{"IndentationError: ", Sign::StartUp},
    KnownText{"TabError: ", Sign::StartUp},
    KnownText{"error while loading shared libraries", Sign::StartUp},
    KnownText{"The NVIDIA driver on your system is too old", Sign::GpuSoftware},
    KnownText{"CUDA driver version is insufficient", Sign::GpuSoftware},
    KnownText{"no kernel image is available for execution on the device", Sign::GpuSoftware},
    KnownText{"Torch not compiled with CUDA enabled", Sign::GpuSoftware},
    KnownText{"invalid device ordinal", Sign::GpuNumber},
    KnownText{"Duplicate GPU detected", Sign::SharedGpu},
    KnownText{": can't open file '", Sign::StartUp},
    KnownText{": error: unrecognized arguments", Sign::StartUp},
    KnownText{": error: the following arguments are required", Sign::StartUp},
    KnownText{": error: argument ", Sign::StartUp},
};

constexpr std::array kWeakTexts{
    KnownText{"MemoryError", Sign::HostMemory},
    KnownText{"Cannot allocate memory", Sign::HostMemory},
    KnownText{"Unable to allocate", Sign::HostMemory},
    KnownText{"No space left on device: '/dev/shm", Sign::DataLoaderWorker},
    KnownText{"uncorrectable", Sign::Hardware},
    KnownText{"CUDA-capable device(s) is/are busy or unavailable", Sign::Hardware},
    KnownText{"Bus error", Sign::Hardware},
    KnownText{"Collectives differ in the following aspects", Sign::Desync},
    KnownText{"lost rank ", Sign::PeerLost},
    KnownText{"the process of rank ", Sign::PeerLost},
    KnownText{"remote process exit", Sign::PeerLost},
    KnownText{"wait timeout after", Sign::Waited},
    KnownText{"Socket Timeout", Sign::Waited},
    KnownText{"Wait timeout", Sign::Waited},
    KnownText{"Timed out waiting", Sign::Waited},
    KnownText{"NCCL operation timed out", Sign::Waited},
    KnownText{"Connection was likely closed", Sign::PeerLost},
    KnownText{"Connection reset by peer", Sign::PeerLost},
    KnownText{"connection reset by peer", Sign::PeerLost},
    KnownText{"Broken pipe", Sign::PeerLost},
    KnownText{"Socket closed", Sign::PeerLost},
    KnownText{"Connection refused", Sign::NoConnection},
    KnownText{"connection refused", Sign::NoConnection},
    KnownText{"No route to host", Sign::NoConnection},
    KnownText{"Network is unreachable", Sign::NoConnection},
    KnownText{"Connection timed out", Sign::NoConnection},
    KnownText{"connection timed out", Sign::NoConnection},
    KnownText{"Temporary failure in name resolution", Sign::NoConnection},
    KnownText{"Name or service not known", Sign::NoConnection},
    KnownText{"ddress already in use", Sign::PortInUse},
    KnownText{"FileNotFoundError: ", Sign::MaybeStartUp},
    KnownText{"NotADirectoryError: ", Sign::MaybeStartUp},
    KnownText{"PermissionError: ", Sign::MaybeStartUp},
    KnownText{"No such file or directory", Sign::MaybeStartUp},
    KnownText{"No CUDA GPUs are available", Sign::NoGpu},
    KnownText{"CUDA driver initialization failed", Sign::NoGpu},
    KnownText{"no CUDA-capable device is detected", Sign::NoGpu},
    KnownText{"usage: ", Sign::MaybeStartUp, true},  // not "ncclInvalidUsage: "
    KnownText{"Usage: ", Sign::MaybeStartUp, true},
    KnownText{"command not found", Sign::MaybeStartUp},
    KnownText{"invalid option", Sign::MaybeStartUp},
    KnownText{"unrecognized option", Sign::MaybeStartUp},
    KnownText{"device-side assert triggered", Sign::GpuAssertion},
    KnownText{"CUDA_ERROR_ASSERT", Sign::GpuAssertion},
    KnownText{"illegal memory access was encountered", Sign::GpuAccess},
    KnownText{"CUDA_ERROR_ILLEGAL_ADDRESS", Sign::GpuAccess},
    KnownText{"misaligned address", Sign::GpuAccess},
    KnownText{"Memory access fault by GPU", Sign::GpuAccess},
    KnownText{"NCCL error in", Sign::NcclError},
};

// In errors of the GPU's libraries.
constexpr auto kGpuWords =
    std::to_array<std::string_view>({"CUDA", "cuda", "NCCL", "CUBLAS", "CUDNN", "cuDNN", "HIP "});

// Lines that follow the error of a Python program and do not explain it.
constexpr auto kNoise = std::to_array<std::string_view>(
    {"terminate called without an active exception", "warnings.warn(", "Aborted"});

constexpr std::array<std::string_view, 23> kCollectives{
    "all_reduce",
    "all_reduce_coalesced",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "monitored_barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "recv",
    "send",
    "new_group",
    "init_process_group",
};

bool is_in(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// A line without blanks at both ends.
struct TextLine : std::string_view {
  bool is_exception = false;  // it names an exception of Python
};
using TextLines = std::vector<TextLine>;

constexpr std::string_view kTracebackHead = "Traceback (most recent call last):";
constexpr std::string_view kGroupHead = "Exception Group Traceback (most recent call last):";

// Collects the lines of a worker's texts. An exception is known by the form of its name, or by its
// place: it is the first line below a traceback that is not indented.
class TextReader {
 public:
  // The last kMostReadBytes of `text`, without notes.
  void add_end_of(std::string_view text) {
    if (text.size() > kMostReadBytes) text.remove_prefix(text.size() - kMostReadBytes);
    const std::vector<std::string_view> own = split(text, '\n');
    const std::size_t first = own.size() > kMostReadLines ? own.size() - kMostReadLines : 0;
    for (std::size_t i = first; i < own.size(); ++i) add(own[i]);
  }
  // The next text may begin within a traceback.
  void begin_text() {
    is_at_begin_ = true;
    is_in_group_ = awaits_exception_ = false;
  }
  TextLines take() { return std::move(lines_); }

 private:
  void add(std::string_view raw) {
    std::string_view line = without_rank_mark(raw);
    if (line.empty()) return;
    const auto before = static_cast<std::size_t>(line.data() - raw.data());
    const std::size_t mark_end = raw.substr(0, before).find_last_not_of(" \t") + 1;
    bool is_indented = before - mark_end > (mark_end > 0 ? 1U : 0U);
    if (line.ends_with(kGroupHead)) {
      is_in_group_ = true;
    } else if (is_in_group_ && (line.front() == '|' || line.front() == '+')) {
      if (!take_margin(line, is_indented)) return;
    } else if (!is_indented && std::exchange(is_in_group_, false)) {
      awaits_exception_ = false;
    }
    // Python prints the source line of a warning below it.
    const bool is_source =
        raw.starts_with("  ") && !lines_.empty() && is_python_warning(lines_.back());
    const bool is_exception = note_exception(line, is_indented);
    if (!is_source && !is_note(line)) lines_.push_back({{line}, is_exception});
  }
  // Of a group of exceptions: "| ValueError: bad loss", "+---------------- 2 ----------------".
  bool take_margin(std::string_view& line, bool& is_indented) {
    if (line.front() == '+') awaits_exception_ = true;
    if (line.front() == '+' || line.size() < 3) return false;
    is_indented = line[2] == ' ';
    line = trimmed(line.substr(1));
    return true;
  }
  bool note_exception(std::string_view line, bool is_indented) {
    const bool is_head = line.ends_with(kTracebackHead);
    const bool is_frame = is_indented && line.starts_with("File \"") && is_in(line, ", in ");
    if (is_head || (is_frame && is_at_begin_)) awaits_exception_ = true;
    if (!is_indented) is_at_begin_ = false;
    if (is_exception_line(line)) {
      if (!is_indented) awaits_exception_ = false;
      return true;
    }
    if (!awaits_exception_ || is_indented || is_head || is_warning(line) ||
        !may_end_traceback(line))
      return false;
    awaits_exception_ = false;
    return true;
  }

  TextLines lines_;
  bool is_at_begin_ = false;       // all lines so far were indented
  bool is_in_group_ = false;       // of exceptions
  bool awaits_exception_ = false;  // below a traceback
};

template <std::size_t kCount>
bool is_any_in(std::string_view line, const std::array<std::string_view, kCount>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [line](std::string_view part) { return is_in(line, part); });
}
// Python marks parts of a source line with "^" below it.
bool is_noise(std::string_view line) {
  return is_any_in(line, kNoise) || line.find_first_not_of("^~ ") == line.npos;
}

// When a process of a DataLoader ends, PyTorch's signal handler raises an error. Python 3.11
// and 3.12 print an error frame by frame; if the handler runs meanwhile, the rest of the traceback
// is missing, and C code shows the error instead: "object repr     : EOFError()" and other lines.
constexpr std::string_view kDumpedError = "object repr     : ";
constexpr std::string_view kCutOff = "lost sys.stderr";

// Whether the last traceback ends where a DataLoader waits for its processes, or was cut off above
// that frame.
bool ends_in_data_loader(const TextLines& lines) {
  const bool is_cut_off = std::find(lines.begin(), lines.end(), kCutOff) != lines.end();
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (!line->starts_with("File \"") || is_in(*line, "/multiprocessing/")) continue;
    if (!is_in(*line, "/torch/utils/data/dataloader.py\"")) return false;
    return line->ends_with(", in _get_data") || line->ends_with(", in _try_get_data") ||
           (is_cut_off && (line->ends_with(", in __next__") || line->ends_with(", in _next_data")));
  }
  return is_cut_off && std::any_of(lines.begin(), lines.end(), [](std::string_view line) {
           return line.starts_with(kDumpedError) &&
                  (is_in(line, "EOFError(") || is_in(line, "ConnectionResetError("));
         });
}

// Whether the last exception before `end` says that the other process of a connection is gone.
bool breaks_connection(const TextLines& lines, std::size_t end) {
  constexpr auto kBroken =
      std::to_array<std::string_view>({"EOFError", "Connection", "BrokenPipeError"});
  while (end > 0 && !lines[end - 1].is_exception) --end;
  return end > 0 && std::any_of(kBroken.begin(), kBroken.end(), [&](std::string_view name) {
           return lines[end - 1].starts_with(name);
         });
}

// Removes exceptions that the interpreter ignored, mostly in a destructor, if another one remains.
// Cython prints their traceback twice, first without "Exception ignored in: ...".
void remove_ignored_exceptions(TextLines& lines) {
  const auto has_exception_before = [&lines](std::size_t end) {
    return std::any_of(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(end),
                       [](const TextLine& line) { return line.is_exception; });
  };
  for (std::size_t i = lines.size(); i-- > 1;) {
    if (!lines[i].starts_with("Exception ignored ") || !has_exception_before(i)) continue;
    std::size_t last = i + 1;
    bool is_inside = false;
    for (; last < lines.size() && !lines[last].is_exception; ++last) {
      if (is_inside && lines[last].starts_with(kTracebackHead)) break;
      is_inside = is_inside || lines[last].starts_with(kTracebackHead);
    }
    std::size_t first = i;
    if (last < lines.size() && lines[last] == lines[i - 1]) {
      while (first > 0 && !lines[first].starts_with(kTracebackHead)) --first;
      if (!has_exception_before(first)) first = i;
    }
    if (last < lines.size() && lines[last].is_exception) {
      // PyTorch's signal handler ran too late to replace the error of the broken connection.
      if (is_in(lines[last], kLostLoader) && breaks_connection(lines, first)) continue;
      ++last;
    }
    lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(first),
                lines.begin() + static_cast<std::ptrdiff_t>(last));
    i = first;
  }
}

using FoundSign = std::optional<std::pair<Sign, std::string_view>>;

template <std::size_t kCount>
FoundSign find_in(const TextLines& lines, std::size_t first,
                  const std::array<KnownText, kCount>& texts) {
  for (const KnownText& known : texts)
    for (std::size_t i = lines.size(); i-- > first;)
      if (known.is_at_begin ? lines[i].starts_with(known.text) : is_in(lines[i], known.text))
        return std::pair(known.sign, lines[i]);
  return std::nullopt;
}

// A program may print what it finds in the kernel log.
FoundSign find_strong(const TextLines& lines, std::size_t first) {
  for (std::size_t i = lines.size(); i-- > first;)
    if (parse_gpu_fault(lines[i])) return std::pair(Sign::Hardware, lines[i]);
  return find_in(lines, first, kStrongTexts);
}

std::optional<int> number_at(std::string_view text) {
  const auto number = leading_number<int>(text);
  return number && *number >= 0 && *number <= 10'000'000 ? number : std::nullopt;
}

// Numbers in a list: "1, 3 failed" -> 1, 3.
void add_numbers(RankRanges& ranks, std::string_view text) {
  std::size_t count = 0;
  while (count++ < kMostNamed) {
    const std::optional<int> rank = number_at(text);
    if (!rank) break;
    ranks.push_back({*rank, *rank});
    text.remove_prefix(std::min(text.find_first_not_of("0123456789"), text.size()));
    const std::size_t next = text.find_first_not_of(", ");
    if (next == 0 || next == text.npos) break;
    text.remove_prefix(next);
    if (text.starts_with("and ")) text.remove_prefix(4);
  }
  normalize(ranks);
}

// Behind the last `mark` before `end_mark`.
std::string_view between(std::string_view line, std::string_view mark, std::string_view end_mark) {
  const std::size_t end = line.find(end_mark);
  if (end == line.npos) return {};
  const std::size_t begin = line.rfind(mark, end);
  return begin == line.npos ? std::string_view() : line.substr(begin + mark.size());
}

RankRanges ranks_named(const TextLines& lines) {
  RankRanges ranks;
  for (const std::string_view line : lines) {
    if (count_of(ranks) > kMostNamed) break;
    if (is_in(line, "but didn't join collective")) {
      // "[0, 2] finished collective #1, but didn't join collective #2"
      const std::size_t begin = line.rfind('[', line.find("but didn't join"));
      if (begin != line.npos) add_numbers(ranks, line.substr(begin + 1));
    } else if (is_in(line, "failed to pass monitoredBarrier")) {
      std::string_view list = between(line, "Ranks ", " failed to pass");
      if (list.empty()) list = between(line, "Rank ", " failed to pass");
      add_numbers(ranks, list);
    } else if (is_in(line, " did not come in time")) {
      std::string_view list = between(line, "ranks ", " did not come");
      if (list.empty()) list = between(line, "rank ", " did not come");
      add_numbers(ranks, list);
    } else if (is_in(line, "did not do its part in time")) {
      add_numbers(ranks, between(line, "rank ", " did not do its"));
    } else if (is_in(line, "Duplicate GPU detected")) {
      // "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 60"
      for (const std::string_view end : {" and rank ", " both on "})
        add_numbers(ranks, between(line, "rank ", end));
    } else if (is_in(line, " is late, stuck or expects")) {
      add_numbers(ranks, between(line, "rank ", " is late"));
    } else if (const std::size_t lost = line.find("lost rank "); lost != line.npos) {
      add_numbers(ranks, line.substr(lost + 10));
    } else if (const std::size_t at = line.find("the process of rank "); at != line.npos) {
      add_numbers(ranks, line.substr(at + 20));
    }
  }
  normalize(ranks);
  return ranks;
}

std::string value_of(std::string_view text, std::string_view name, std::string_view ends) {
  const std::size_t at = text.find(name);
  if (at == text.npos) return "";
  text.remove_prefix(at + name.size());
  return std::string(rendezvous::cut_text(text.substr(0, text.find_first_of(ends)), 80));
}

void add_disagreement(std::map<int, Call>& calls, std::string_view line) {
  constexpr std::string_view kMark = "the ranks disagree about collective number ";
  const std::size_t mark = line.find(kMark);
  const std::size_t colon = mark == line.npos ? mark : line.find(": ", mark);
  if (colon == line.npos) return;
  for (std::string_view part : split(line.substr(colon + 2), ';')) {
    part = trimmed(part);
    const std::size_t verb = std::min(part.find(" calls "), part.find(" call "));
    if (verb == part.npos) continue;
    const std::size_t call = part.find_first_not_of(" ", part.find(' ', verb + 1));
    if (call == part.npos) continue;
    const std::string op(rendezvous::cut_text(part.substr(call), 80));
    for (const RankRange& range : read_ranks(part.substr(0, verb)))
      for (int rank = range.first; rank <= range.last && calls.size() < kMostCalls; ++rank)
        calls.emplace(rank, Call{.op = op});
  }
}

// "Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=1, OpType=ALLREDUCE,
// TensorShape=[3], ...), but Rank 1 is running collective: ..."
// worker_lib: "the ranks disagree about collective number 9: ranks 0-2 call barrier(); rank 3 calls
// all_reduce(f32 x 500, sum)".
std::map<int, Call> calls_in(const TextLines& lines) {
  constexpr std::string_view kMark = " is running collective: ";
  std::map<int, Call> calls;
  for (const std::string_view line : lines) {
    add_disagreement(calls, line);
    for (std::size_t at = line.find(kMark); at != line.npos; at = line.find(kMark, at + 1)) {
      const std::size_t name = line.rfind("Rank ", at);
      if (name == line.npos || calls.size() >= kMostCalls) continue;
      const std::optional<int> rank = number_at(line.substr(name + 5));
      if (!rank) continue;
      const std::string_view rest = line.substr(at, line.find(kMark, at + 1) - at);
      Call call{.op = value_of(rest, "OpType=", ",)"),
                .shape = value_of(rest, "TensorShape=", "]")};
      if (!call.shape.empty()) call.shape += "]";
      if (!call.op.empty()) calls.emplace(*rank, std::move(call));
    }
  }
  return calls;
}

// "/x/Indexing.cu:15: gather: block: [0,0,0], thread: [0,0,0] Assertion `i < n` failed."
std::string assertion_in(const TextLines& lines) {
  for (const std::string_view line : lines) {
    const std::size_t block = line.find(": block: [");
    const std::string text = value_of(line, " Assertion `", "`");
    const std::size_t place = line.find(": ");
    if (block == line.npos || text.empty() || place >= block) continue;
    const std::string_view path = line.substr(0, place);
    const std::string_view function = line.substr(place + 2, block - place - 2);
    return text + " in " + std::string(rendezvous::cut_text(function, 80)) + " (" +
           std::string(rendezvous::cut_text(path.substr(path.rfind('/') + 1), 80)) + ")";
  }
  return "";
}

// "GPU 0 has a total capacity of 139.80 GiB of which 9.26 GiB is free. ... Including non-PyTorch
// memory, this process has 120.96 GiB memory in use."
std::string memory_use_in(std::string_view line) {
  const std::string total = value_of(line, "ty of ", "o");  // "capacity", and "capacty" in 2.1
  const std::string used = value_of(line, "this process has ", "m");
  if (total.empty() || used.empty()) return "";
  return std::string(trimmed(used)) + " of " + std::string(trimmed(total));
}

// From a Python traceback: `  File "/x/train.py", line 33, in step`.
void find_call(ErrorText& found, const TextLines& lines) {
  std::string user_place;
  for (const std::string_view line : lines) {
    if (!line.starts_with("File \"")) continue;
    const std::string_view path = line.substr(6, line.find('"', 6) - 6);
    const std::size_t in = line.rfind(", in ");
    if (in == line.npos) continue;
    const std::string_view function = line.substr(in + 5);
    if (path.ends_with("/distributed_c10d.py") && is_collective(function)) {
      found.collective = function;
      found.place = user_place;
    } else if (!is_in(path, "/torch/")) {
      const std::string number = value_of(line, "\", line ", ",");
      user_place = std::string(path.substr(path.rfind('/') + 1)) + ":" + number;
    }
  }
}

}  // namespace

std::string timed_out_call(std::string_view line) {
  std::string op = value_of(line, "OpType=", ",)");
  for (char& c : op) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (op.starts_with('_')) op.erase(0, 1);
  if (op.starts_with("all") && !op.starts_with("all_")) op.insert(3, 1, '_');
  if (op.starts_with("all_to")) op.replace(0, 6, "all_to_");
  const std::string number = value_of(line, "SeqNum=", ",)");
  return op.empty() || number.empty() ? op : op + " (number " + number + ")";
}

bool is_collective(std::string_view name) {
  return std::find(kCollectives.begin(), kCollectives.end(), name) != kCollectives.end();
}

std::string evidence_text(std::string_view line) {
  line = trimmed(line);
  if (line.size() <= kDiagnosisLineBytes) return std::string(line);
  return std::string(rendezvous::cut_text(line, kDiagnosisLineBytes - 3)) + "...";
}

namespace {

bool is_by_others(const Failure& failure, std::initializer_list<Sign> signs) {
  const auto* killed = std::get_if<Killed>(&failure.status);
  if (killed != nullptr && killed->signal != SIGABRT) return false;
  const std::optional<Sign> sign = read_error_text(failure).sign;
  return sign && std::find(signs.begin(), signs.end(), *sign) != signs.end();
}

}  // namespace

bool has_only_waited(const Failure& failure) {
  return is_by_others(failure, {Sign::Waited, Sign::MissingRank});
}

bool has_lost_peer(const Failure& failure) { return is_by_others(failure, {Sign::PeerLost}); }

namespace {

constexpr std::string_view kAccountMark = "--- its signal ---\n";
constexpr std::string_view kKernelMark = "--- GPU errors in the kernel log of its node ---\n";
constexpr std::string_view kStacksMark = "--- the other ranks when it failed ---\n";
constexpr std::size_t kMostTraceback = std::size_t{31} << 10;  // the wire carries 32 KiB
constexpr std::size_t kMostStacksBytes = std::size_t{20} << 10;

// The end of `traceback`, `mark` and `text`.
std::string with_part(std::string_view traceback, std::string_view mark, std::string_view text,
                      std::size_t most_before) {
  if (traceback.size() > most_before) traceback.remove_prefix(traceback.size() - most_before);
  std::string whole(traceback);
  if (!whole.empty() && whole.back() != '\n') whole += '\n';
  return whole.append(mark).append(text);
}

// Takes what is behind `mark` off the end of `text`.
std::string_view cut_off(std::string_view& text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  if (at == text.npos) return {};
  const std::string_view part = text.substr(at + mark.size());
  text = text.substr(0, at);
  return part;
}

}  // namespace

std::string with_signal_account(std::string_view traceback, std::string_view account) {
  if (account.empty()) return std::string(traceback);
  return with_part(traceback, kAccountMark, account, kMostTraceback - account.size());
}

std::string with_kernel_log(std::string_view traceback, const std::vector<std::string>& lines) {
  if (lines.empty()) return std::string(traceback);
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return with_part(traceback, kKernelMark, text, kMostTraceback - text.size());
}

std::string stacks_at_failure(const Evidence& evidence) {
  std::string text;
  for (const std::string& line : evidence_lines(evidence, 400)) {
    if (text.size() + line.size() > kMostStacksBytes) break;
    text += line + "\n";
  }
  return text;
}

std::string with_stacks(std::string_view traceback, std::string_view stacks) {
  return with_part(traceback, kStacksMark, stacks, kMostTraceback - kMostStacksBytes);
}

TracebackParts parts_of(std::string_view traceback) {
  TracebackParts parts{.traceback = traceback};
  parts.stacks = cut_off(parts.traceback, kStacksMark);
  parts.kernel_log = cut_off(parts.traceback, kKernelMark);
  parts.account = cut_off(parts.traceback, kAccountMark);
  return parts;
}

std::string shown_traceback(std::string_view traceback) {
  const std::string_view account = parts_of(traceback).account;
  if (account.empty()) return std::string(traceback);
  const auto begin = static_cast<std::size_t>(account.data() - traceback.data());
  std::string shown(traceback.substr(0, begin - kAccountMark.size()));
  return shown.append(traceback.substr(begin + account.size()));
}

namespace {

// `exception`: its line.
std::vector<std::string> error_in(const TextLines& lines, std::optional<std::size_t> exception,
                                  const FoundSign& sign) {
  const auto last_with = [&lines](const auto& is_wanted) -> std::optional<std::size_t> {
    for (std::size_t i = lines.size(); i-- > 0;)
      if (is_wanted(lines[i])) return i;
    return std::nullopt;
  };
  static constexpr std::string_view kWhat = "what():";
  const auto is_signs = [&sign](std::string_view line) { return sign && line == sign->second; };
  std::optional<std::size_t> at = exception;
  if (!at) at = last_with([](std::string_view line) { return line.starts_with(kWhat); });
  if (!at) at = last_with(is_signs);
  if (!at) at = last_with(is_fatal_line);
  if (!at) at = last_with([](std::string_view line) { return line.starts_with(kDumpedError); });
  if (!at)
    at = last_with([](std::string_view line) { return !is_noise(line) && !is_warning(line); });
  if (!at) return {};
  std::string_view head = lines[*at];
  for (const std::string_view begin : {kWhat, kDumpedError})
    if (head.starts_with(begin)) head = trimmed(head.substr(begin.size()));
  std::vector<std::string> error{std::string(head)};
  // NCCL's own error, or what the program found to be wrong.
  const std::size_t last_error =
      last_with([](std::string_view line) { return line == "Last error:"; }).value_or(0);
  std::size_t detail = last_error > *at ? last_error + 1 : last_with(is_signs).value_or(0);
  if (detail <= *at && head.ends_with(':')) detail = *at + 1;
  if (detail > *at && detail < lines.size()) error.emplace_back(lines[detail]);
  return error;
}

// In the order in which they were written. The returned lines refer to `failure`.
TextLines lines_of(const Failure& failure) {
  TextReader reader;
  const bool has_hung = std::holds_alternative<Hung>(failure.status);
  if (!has_hung) reader.add_end_of(parts_of(failure.traceback).traceback);
  std::size_t first = failure.stderr_tail.size();
  for (std::size_t bytes = 0; first > 0 && failure.stderr_tail.size() - first < kMostReadLines;
       --first) {
    bytes += failure.stderr_tail[first - 1].size() + 1;
    if (bytes > 2 * kMostReadBytes) break;
  }
  reader.begin_text();
  for (; first < failure.stderr_tail.size(); ++first) reader.add_end_of(failure.stderr_tail[first]);
  if (!has_hung) reader.add_end_of(failure.message);  // last: it is the error
  TextLines lines = reader.take();
  remove_ignored_exceptions(lines);
  return lines;
}

// The error that ended the program: from the last exception on, or the last lines.
struct EndingError {
  std::size_t first = 0;
  bool is_exception = false;
  bool is_chain = false;  // it came from an exception before it
};

bool links_exceptions(std::string_view line) {
  return is_in(line, "exception was the direct cause of the following") ||
         is_in(line, "another exception occurred:");
}

EndingError ending_error_of(const TextLines& lines, const ExitStatus& status) {
  constexpr std::size_t kLastLines = 5;
  const std::size_t last_lines = lines.size() > kLastLines ? lines.size() - kLastLines : 0;
  // A signal other than SIGABRT does not come from an exception that was logged before.
  const auto* killed = std::get_if<Killed>(&status);
  const bool is_signal = killed != nullptr && killed->signal != SIGABRT;
  EndingError error{.first = last_lines};
  for (std::size_t i = is_signal ? last_lines : 0; i < lines.size(); ++i) {
    if (lines[i].is_exception)
      error = {.first = i, .is_exception = true, .is_chain = error.is_chain};
    // A traceback that is not behind such a line begins another error.
    if (links_exceptions(lines[i]))
      error.is_chain = true;
    else if (lines[i] == kTracebackHead && i > 0 && !links_exceptions(lines[i - 1]))
      error.is_chain = false;
  }
  // NCCL's warnings precede its error.
  error.is_chain =
      error.is_chain || (error.is_exception && is_in(lines[error.first], "NCCL error in"));
  return error;
}

FoundSign sign_of(const TextLines& lines, const EndingError& error) {
  FoundSign sign = find_strong(lines, error.first);
  // An earlier text is the cause only of an exception that came from it, or of an end without one.
  if (!sign && (error.is_chain || !error.is_exception)) sign = find_strong(lines, 0);
  return sign ? sign : find_in(lines, error.first, kWeakTexts);
}

// Processes of a DataLoader pass tensors over sockets of Python's multiprocessing.
bool is_from_multiprocessing(const TextLines& lines) {
  return std::any_of(lines.begin(), lines.end(), [](std::string_view line) {
    return is_in(line, "/multiprocessing/resource_sharer.py") ||
           is_in(line, "/torch/multiprocessing/reductions.py");
  });
}

// Whether a DataLoader's process ended, and its rank saw only that a connection to it broke.
bool has_lost_data_loader(const TextLines& lines, const EndingError& error, const FoundSign& sign) {
  const bool is_broken =
      sign && (sign->first == Sign::PeerLost || sign->first == Sign::NoConnection);
  if (!error.is_exception)
    return (!sign || is_broken) && (is_from_multiprocessing(lines) || ends_in_data_loader(lines));
  const std::string_view exception = lines[error.first];
  return is_from_multiprocessing(lines) &&
         (is_broken || exception.starts_with("EOFError") ||
          exception.starts_with("FileNotFoundError: "));  // the socket is a file
}

}  // namespace

ErrorText read_error_text(const Failure& failure) {
  TextLines lines = lines_of(failure);
  const EndingError error = ending_error_of(lines, failure.status);
  const auto first = static_cast<std::ptrdiff_t>(error.first);
  if (error.is_exception)
    lines.erase(std::remove_if(lines.begin() + first, lines.end(), is_warning), lines.end());
  ErrorText found;
  find_call(found, lines);
  found.is_exception = error.is_exception;
  found.names_gpu = std::any_of(lines.begin() + first, lines.end(),
                                [](std::string_view line) { return is_any_in(line, kGpuWords); });
  const FoundSign sign = sign_of(lines, error);
  found.error =
      error_in(lines, error.is_exception ? std::optional(error.first) : std::nullopt, sign);
  if (!found.error.empty()) found.line = evidence_text(found.error.front());
  if (sign) {
    found.sign = sign->first;
    found.line = evidence_text(sign->second);
  }
  if (has_lost_data_loader(lines, error, sign)) found.sign = Sign::DataLoaderWorker;
  if (!sign) return found;
  const bool blames = found.sign == Sign::MissingRank || found.sign == Sign::PeerLost ||
                      found.sign == Sign::SharedGpu;
  if (blames) found.named = ranks_named(lines);
  if (found.sign == Sign::Desync) found.calls = calls_in(lines);
  if (found.sign == Sign::GpuAssertion) found.detail = assertion_in(lines);
  if (found.sign == Sign::GpuMemory) found.detail = memory_use_in(sign->second);
  return found;
}

std::vector<std::string> error_lines(const Failure& failure) {
  if (failure.message.empty()) return read_error_text(failure).error;
  std::vector<std::string> lines;
  for (const std::string_view line : split(failure.message, '\n'))
    if (!is_note(line)) lines.emplace_back(line);
  while (!lines.empty() && trimmed(lines.back()).empty()) lines.pop_back();
  return lines;
}

}  // namespace drun::agent

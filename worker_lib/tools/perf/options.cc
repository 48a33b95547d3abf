#include "worker_lib/tools/perf/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "rendezvous/base/text.h"
#include "worker_lib/core/backends.h"

namespace drun::perf {
namespace {

constexpr DataType kTypes[] = {DataType::U8,   DataType::I8,  DataType::I16, DataType::I32,
                               DataType::U32,  DataType::I64, DataType::U64, DataType::F16,
                               DataType::BF16, DataType::F32, DataType::F64};
constexpr ReduceOp kOps[] = {ReduceOp::Sum,  ReduceOp::Product, ReduceOp::Min,  ReduceOp::Max,
                             ReduceOp::Band, ReduceOp::Bor,     ReduceOp::Bxor, ReduceOp::Avg};

template <typename Enum, std::size_t kCount>
std::map<std::string, Enum> by_name(const Enum (&values)[kCount]) {
  std::map<std::string, Enum> names;
  for (const Enum value : values) names.emplace(to_string(value), value);
  return names;
}

// "64M" -> 64 * 2^20; 0: not a size.
std::size_t read_bytes(std::string_view text) {
  constexpr std::string_view kUnits = "KMG";
  int shift = 0;
  if (!text.empty()) {
    const std::size_t unit = kUnits.find(static_cast<char>(text.back() & ~0x20));
    if (unit != std::string_view::npos) {
      shift = 10 * static_cast<int>(unit + 1);
      text.remove_suffix(1);
    }
  }
  const auto number = whole_number<std::size_t>(text);
  constexpr std::size_t kMost = std::size_t{1} << 40;
  if (!number || *number > kMost >> shift) return 0;
  return *number << shift;
}

constexpr char kNccl[] = "nccl";

std::string set_bytes(const std::string& text, Options& options) {
  const std::size_t colon = text.find(':');
  options.min_bytes = read_bytes(std::string_view(text).substr(0, colon));
  options.max_bytes =
      colon == std::string::npos ? options.min_bytes : read_bytes(text.substr(colon + 1));
  if (options.min_bytes > 0 && options.min_bytes <= options.max_bytes) return "";
  return "\"" + text + "\" is not a size (4, 64K, 1M) or MIN:MAX";
}

// Combines the options of the backend and the device; returns the error, or "".
std::string set_device(const std::string& device, bool has_backend, Options& options) {
  if (device == "cuda" && !has_backend) options.backend = kNccl;
  const Result<worker::BackendChoice> choice = worker::parse_backend(options.backend);
  if (!choice) return choice.error().message;
  const bool is_nccl = choice->name == kNccl;
  options.is_on_gpu = device.empty() ? is_nccl : device == "cuda";
  if (options.is_on_gpu && !is_nccl && choice->gpu != kNccl) {
    return "--device cuda needs a backend that works on GPUs, and " + options.backend +
           " does not: leave --backend out, or use nccl or cpu:shm+tcp,cuda:nccl";
  }
  if (!options.is_on_gpu && is_nccl) {
    return "--backend nccl works on memory of GPUs only: leave --device cpu out";
  }
  if (options.is_on_gpu && options.is_shared) {
    return "--shared is memory of the host: leave it out, or use --device cpu";
  }
  return "";
}

constexpr const char kManHead[] = R"(.TH DRUN\-PERF 1 2026-11-25 drun
.SH NAME
drun\-perf \- measure collective operations between the workers of a job
.SH SYNOPSIS
.B drun
.RI [ option ...]
.B drun\-perf
.I operation
.RI [ option ...]
.SH DESCRIPTION
.B drun\-perf
is a program for the workers of a
.BR drun (1)
job.
They run one collective operation of worker_lib with messages of growing size, check its results, and rank 0 prints
the time and the bandwidth of each size.
.PP
An
.I operation
is one of
)";

constexpr const char kManEnd[] = R"(.SH EXIT STATUS
0 if all results were right, 2 after a usage error, otherwise another code.
.SH EXAMPLES
.EX
drun \-\-nproc\-per\-node=4 drun\-perf all_reduce \-\-bytes 4:64M
drun \-\-nproc\-per\-node=gpu drun\-perf all_reduce \-\-device cuda
.EE
.SH SEE ALSO
.BR drun (1)
)";

// drun-perf(1): the page's text around the options that `app` has.
std::string man_page(const CLI::App& app) {
  std::string text = kManHead;
  const std::vector<std::string> names = operation_names();
  for (std::size_t i = 0; i < names.size(); ++i)
    text += ".BR " + roff_text(names[i]) + " " + (i + 1 < names.size() ? ",\n" : ".\n");
  text += ".SH OPTIONS\n";
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty()) continue;  // the operation
    text += ".TP\n";
    for (const std::string& letter : option->get_snames())
      text += "\\fB\\-" + roff_text(letter) + "\\fR, ";
    text += "\\fB\\-\\-" + roff_text(option->get_lnames().front()) + "\\fR";
    if (option->get_items_expected_max() > 0) text += " \\fIvalue\\fR";
    text += '\n' + roff_text(option->get_description());
    if (!option->get_default_str().empty())
      text += " (default " + roff_text(option->get_default_str()) + ")";
    text += '\n';
  }
  return text + kManEnd;
}

}  // namespace

std::vector<std::string> operation_names() {
  std::vector<std::string> names;
  for (int i = 0; i <= static_cast<int>(Operation::AllToAll); ++i) {
    names.emplace_back(to_string(static_cast<Operation>(i)));
  }
  names.emplace_back("send_recv");
  return names;
}

std::variant<Options, int> parse_options(int argc, const char* const* argv) {
  Options options;
  CLI::App app{
      "Times collectives between the workers of a job and checks their results.\n"
      "Examples: drun --nproc_per_node=4 drun-perf all_reduce --bytes 4:64M\n"
      "          drun --nproc_per_node=gpu drun-perf all_reduce --device cuda",
      "drun-perf"};
  app.add_option("operation", options.operation, "What to time")
      ->check(CLI::IsMember(operation_names()))
      ->required();
  std::string bytes = "4:64M";
  app.add_option("-b,--bytes", bytes, "Size, or MIN:MAX in powers of two (K, M, G)")
      ->capture_default_str();
  const CLI::Option* const backend =
      app.add_option("--backend", options.backend,
                     "shm, tcp, ucx, gloo, shm+tcp, shm+ucx, shm+gloo, nccl, or "
                     "cpu:shm+tcp,cuda:nccl; with "
                     "--device cuda nccl")
          ->capture_default_str();
  std::string device;
  app.add_option("--device", device,
                 "Where the numbers lie: cpu, or cuda, on the GPU of each rank's local rank; with "
                 "--backend nccl cuda, else cpu. On a GPU operations are timed in a row, as "
                 "nccl-tests does")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  const std::map<std::string, DataType> types = by_name(kTypes);
  const std::map<std::string, ReduceOp> ops = by_name(kOps);
  std::string type = "f32";
  std::string op = "sum";
  app.add_option("-t,--dtype", type, "Type of the numbers")
      ->capture_default_str()
      ->check(CLI::IsMember(types));
  app.add_option("--op", op, "How they are reduced")
      ->capture_default_str()
      ->check(CLI::IsMember(ops));
  app.add_option("--root", options.root, "Root of broadcast, reduce, gather and scatter")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--shared", options.is_shared, "Buffers from alloc_shared (zero-copy)");
  app.add_option("--seconds", options.seconds, "Time for each size")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 3600.0));
  app.add_flag("--json", options.is_json, "One JSON object a line");
  if (argc == 2 && std::string_view(argv[1]) == "--print-man") {  // CMake's, for drun-perf(1)
    std::fputs(man_page(app).c_str(), stdout);
    return 0;
  }
  try {
    app.parse(argc, argv);
    if (const std::string wrong = set_bytes(bytes, options); !wrong.empty()) {
      throw CLI::ValidationError("--bytes", wrong);
    }
    if (const std::string wrong = set_device(device, backend->count() > 0, options);
        !wrong.empty()) {
      throw CLI::ValidationError("--device", wrong);
    }
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  options.type = types.at(type);
  options.op = ops.at(op);
  return options;
}

}  // namespace drun::perf

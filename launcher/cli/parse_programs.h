// core. Parses several programs on one command line or in a file.
//
//   [option...] -np N [option...] program [argument...] : -np M ... program [argument...] ...
//
// Options before the first program apply to the job, except -np, --nproc-per-node, -x, --role,
// --gpus-per-worker, -m and --no-python, which apply to the first program. A file has one program
// per line; blank lines and lines that begin with # are ignored, and words are split as in --wrap.
// See mpirun(1), "Multiple Instruction, Multiple Data", and its appfiles.
//
// Errors:  Usage, naming the program, the option, the reason and the remedy. Never throws.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/arguments.h"
#include "launcher/cli/options.h"
#include "rendezvous/base/result.h"

namespace drun {

inline constexpr std::size_t kMostPrograms = 1024;

// Whether the command line has several programs: --separator is given, or there is a `:` and the
// first program has its own number of workers (but not under the name torchrun).
bool divides(const Options& options, const Arguments& arguments);

// Stores the programs of such a command line in `options`, and moves the first program's options to
// it. `known`: all options of drun, for error messages about those of the job.
Result<void> take_programs(Options& options, const Arguments& arguments,
                           std::span<const OptionSyntax> known);

// Does the same with the text of --app=FILE.
Result<void> take_app_file(Options& options, const Arguments& arguments, std::string_view text,
                           std::span<const OptionSyntax> known);

// Splits each line of the file into words.
Result<std::vector<std::vector<std::string>>> parse_app_file(std::string_view text);

}  // namespace drun

// core. Several programs on one command line, or in a file: where one ends, and what each is given.
//
// Grammar: [option...] -np N [option...] program [argument...] : -np M ... program [argument...]
// ...
//          What stands before the first program is the job's, but for -np, --nproc-per-node, -x,
//          --role, --gpus-per-worker, -m and --no-python: those are the first program's own.
//          In a file: a program a line, blank lines and those that begin with # are left out; words
//          as --wrap splits them.
// Source:  mpirun(1), "Multiple Instruction, Multiple Data", and its appfiles.
// Owner:   values; copy freely.   Thread: any.
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

// Whether this is a line of several programs: --separator says so, or there is a `:` and the first
// program has a number of its own (but not under torchrun's name).
bool divides(const Options& options, const Arguments& arguments);

// Puts the programs of a divided line into `options`; what was said of the first one there is its
// own afterwards. `known`: all of drun's options, for what is said about those that are the job's.
Result<void> take_programs(Options& options, const Arguments& arguments,
                           std::span<const KnownOption> known);

// The same from the text of --app=FILE.
Result<void> take_app_file(Options& options, const Arguments& arguments, std::string_view text,
                           std::span<const KnownOption> known);

// The file's lines as words.
Result<std::vector<std::vector<std::string>>> parse_app_file(std::string_view text);

}  // namespace drun

#include "launcher/cli/help.h"

#include <algorithm>

#include "launcher/base/version.h"

namespace drun {
namespace {

constexpr std::size_t kColumns = 80;
constexpr std::size_t kTextAt = 30;

std::string entry_text(const HelpEntry& entry) {
  std::string text = "  " + entry.names;
  if (text.size() + 1 > kTextAt)
    text += '\n' + std::string(kTextAt, ' ');
  else
    text.append(kTextAt - text.size(), ' ');
  bool is_first = true;
  for (const std::string& line : wrapped(entry.text, kColumns - kTextAt)) {
    if (!is_first) text += '\n' + std::string(kTextAt, ' ');
    text += line;
    is_first = false;
  }
  return text + '\n';
}

}  // namespace

std::vector<std::string> wrapped(std::string_view text, std::size_t columns) {
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(" \n"), text.size());
    const std::string_view word = text.substr(0, end);
    std::string& line = lines.back();
    if (line.empty())
      line = word;
    else if (line.size() + 1 + word.size() <= columns)
      line.append(1, ' ').append(word);
    else
      lines.emplace_back(word);
    if (end < text.size() && text[end] == '\n') lines.emplace_back();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string help_text(std::string_view head, std::span<const HelpEntry> entries,
                      std::string_view foot) {
  std::vector<std::string> groups;
  for (const HelpEntry& entry : entries) {
    if (std::find(groups.begin(), groups.end(), entry.group) == groups.end())
      groups.push_back(entry.group);
  }
  std::string text(head);
  for (const std::string& group : groups) {
    text += '\n' + group + ":\n";
    for (const HelpEntry& entry : entries) {
      if (entry.group == group) text += entry_text(entry);
    }
  }
  return text.append(foot);
}

std::string launcher_help_head(std::string_view invoked_as) {
  const std::string name(invoked_as);
  const char* const more =  // not under the other name
      name == "torchrun"
          ? ""
          : "  drun -np 1 ./server : -np 4 ./worker\n"
            "      two programs in one job, each with its role\n"
            "  srun -N3 drun ./train        mpirun --map-by ppr:1:node drun ./train\n"
            "      Slurm, MPI launchers, PBS, LSF, Kubernetes say who is where; see --explain\n";
  return "drun starts a distributed job as torchrun does, for programs in any language.\n"
         "\n"
         "  " +
         name +
         " --nproc-per-node=4 ./train --epochs=3\n"
         "      four workers on this machine\n"
         "  " +
         name +
         " --nnodes=3 --node-rank=0 --nproc-per-node=4 --master-addr=gpu0 ./train\n"
         "      on each of three machines, with its own --node-rank: twelve workers\n"
         "  " +
         name +
         " --hosts=gpu[0-2]:4 ./train\n"
         "      the same from any one machine, over ssh\n" +
         more +
         "\n"
         "Usage: " +
         name +
         " [option...] [--] program [argument...]\n"
         "       drun store [--port P] [--loopback] [--store-memory SIZE]\n"
         "       drun status [JOB] [--json] [--watch] [--node]\n"
         "       drun stacks [JOB] [--json]\n"
         "       drun doctor [--json] [option...]\n"
         "\n"
         "Options may be written with - or _ and cut short as long as they stay clear.\n"
         "Each can come from a variable (PET_NNODES=3 for --nnodes=3) or from --config;\n"
         "the command line wins, then the variable. What follows the program is its own.\n";
}

std::string launcher_help_foot() {
  return "\n"
         "A program ending in .py, and a module, are given to python3 -u: $PYTHON_EXEC,\n"
         "the active environment's, or PATH's. Any other program is executed.\n"
         "${local_rank} in an argument becomes the worker's number.\n"
         "\n"
         "Exit code: 0 when every worker of every node returned 0; else that of the first\n"
         "worker to fail (128+n for signal n). Of drun's own: 2 usage, 120 nodes missing,\n"
         "121 turned away, 122 a node was lost, 123 a worker hung, 125 system error,\n"
         "126 program not executable, 127 program not found; 128+n when signal n ended\n"
         "drun.\n";
}

std::string store_help_head() {
  return "drun store serves a TCPStore, as PyTorch's programs and torchrun know it, until it\n"
         "is told to stop.\n"
         "\n"
         "Usage: drun store [--port P] [--loopback] [--store-memory SIZE]\n";
}

std::string status_help_head() {
  return "drun status shows the jobs that have an agent on this machine, yours only: phase,\n"
         "round, restarts, every node of the job with its workers, the last failure. JOB is\n"
         "a run id or the pid of an agent.\n"
         "\n"
         "Usage: drun status [JOB] [--json] [--watch] [--node]\n";
}

std::string stacks_help_head() {
  return "drun stacks shows what every worker of a job is doing, on all its nodes: stacks\n"
         "of all threads, equal ones once for all ranks that share them. Nothing is\n"
         "stopped. JOB is a run id or the pid of an agent; one agent of the job must run on\n"
         "this machine.\n"
         "\n"
         "Usage: drun stacks [JOB] [--json]\n";
}

std::string doctor_help(std::span<const HelpEntry> options) {
  std::vector<HelpEntry> shown;
  for (const HelpEntry& entry : options) {
    const bool is_about_nodes = entry.group == "The job" ||
                                entry.group.starts_with("Of drun doctor") ||
                                entry.group.starts_with("Other machines") ||
                                entry.group.starts_with("Keeping strangers out");
    if (is_about_nodes) shown.push_back(entry);
  }
  return help_text(
      "drun doctor looks at the machines of a job before there is one: limits, memory,\n"
      "GPUs, names, clocks, whether nodes reach each other, and how fast. Write the job's\n"
      "own command on each node, or with --hosts on one, with the word doctor in front; a\n"
      "program in it is not started. Node 0 prints a table of all nodes, then a line for\n"
      "each problem and warning (docs/guide/doctor.md).\n"
      "\n"
      "Usage: drun doctor [--json] [option...] [program [argument...]]\n",
      shown,
      "\n"
      "Exit code: 0 without problems (there may be warnings), 1 with problems, 2 usage,\n"
      "120 when nodes are missing.\n");
}

std::string short_usage(std::string_view invoked_as) {
  const std::string name(invoked_as);
  return "usage: " + name +
         " [option...] program [argument...]\n"
         "try    " +
         name +
         " --nproc-per-node=2 hostname\n"
         "or     " +
         name + " --help\n";
}

}  // namespace drun

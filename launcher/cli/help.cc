#include "launcher/cli/help.h"

#include <algorithm>
#include <array>

#include "launcher/base/text.h"
#include "launcher/base/version.h"
#include "launcher/base/words.h"

namespace drun {
namespace {

constexpr std::size_t kColumns = 80;
constexpr std::size_t kTextAt = 30;

struct Topic {
  std::string_view name;
  std::string_view summary;
  std::string_view group{};  // of a topic: prefix of the options' group
  std::string_view text{};   // what precedes the options
};

constexpr std::array kTopics = std::to_array<Topic>({
    {"job", "nodes, workers and where they meet", "Job",
     "A job has one agent (drun process) per node, and each agent starts the node's\n"
     "workers. Run the same command on each node with its own --node-rank, or use an\n"
     "engine (Slurm, mpirun, Kubernetes), or --hosts (drun help ssh).\n"
     "See docs/guide/get-started.md.\n"},
    {"ssh", "start a job on other hosts", "Other hosts",
     "With --hosts or --hostfile, drun logs in to each host, starts an agent there,\n"
     "and shows the output and the report of the whole job here.\n"
     "See docs/guide/ssh.md, and for -np and --nnodes drun help job.\n"},
    {"ci", "several nodes on this machine, and injected faults", "A cluster",
     "--local-nodes starts a whole cluster on one machine, --inject tests what happens\n"
     "when ranks and nodes fail. See docs/guide/ci.md.\n"},
    {"elastic", "failures, restarts, and nodes that join and leave", "Failures",
     "--max-restarts restarts all workers after a failure. With --nnodes=MIN:MAX and\n"
     "--rdzv-backend=c10d or --hosts, nodes may join and leave while the job runs\n"
     "(drun help job). See docs/guide/elastic.md.\n"},
    {"program", "what is started: scripts, modules, several programs", "Program",
     "See docs/guide/programs.md for several programs in one job.\n"},
    {"output", "console lines and log files", "Output", "See docs/reference/output.md.\n"},
    {"placement", "CPUs, memory and GPUs of the workers", "Placement",
     "See docs/reference/placement.md.\n"},
    {"security", "encryption and authentication", "Security",
     "Without a secret, any host that reaches the job's port can join the job.\n"
     "See docs/reference/security.md.\n"},
    {"shutdown", "signals, reports, events and metrics", "Shutdown",
     "See docs/reference/report.md and docs/reference/events.md.\n"},
});

constexpr std::array kCommands = std::to_array<Topic>({
    {"status",
     "show your running jobs",
     {},
     "Usage: drun status [JOB] [--json] [--watch] [--node]\n"
     "\n"
     "Shows your jobs that have an agent on this machine: phase, round, restarts, all\n"
     "nodes and workers, and the last failure. JOB is a run id or the pid of an agent.\n"},
    {"list",
     "list your running jobs, one line each",
     {},
     "Usage: drun list [--json]\n"
     "\n"
     "Lists your jobs that have an agent on this machine, one line each. On a terminal,\n"
     "long commands are cut to its width, and of a random run id only the 8 digits are\n"
     "shown that identify the job.\n"},
    {"stop",
     "stop running jobs",
     {},
     "Usage: drun stop JOB... [--timeout S]\n"
     "\n"
     "Stops jobs in order, as SIGTERM to drun does, on all their nodes, and waits until\n"
     "they have ended. JOB is a run id or the pid of an agent or of drun. An elastic\n"
     "job loses the nodes of this machine and continues if enough others are left.\n"},
    {"logs",
     "print lines from the log files of ranks",
     {},
     "Usage: drun logs [JOB] [RANK...] [-f] [-g PATTERN] [-n N] [--stdout|--stderr]\n"
     "\n"
     "Prints the lines of ranks, of the latest round, from the log files of a job (--tee,\n"
     "--redirects). JOB is a run id or a pid; without it, the only job here. RANK is a\n"
     "rank or a range (0-3,8), on any node; without it, all ranks on this machine.\n"
     "Lines of several ranks have the labels of drun's console.\n"},
    {"stacks",
     "show what the workers of a job are doing",
     {},
     "Usage: drun stacks [JOB] [--json]\n"
     "\n"
     "Shows the stacks of all threads of all workers of a job, on all its nodes. Ranks\n"
     "with equal stacks form one group. The job keeps running. JOB is a run id or the\n"
     "pid of an agent; one agent of the job must run on this machine.\n"},
    {"report",
     "make a report from the event files of a job",
     {},
     "Usage: drun report EVENTS... [-o FILE] [--text]\n"
     "\n"
     "Makes the report of a job from the event files (--events) of one or more of its\n"
     "nodes: an HTML page that any browser shows without a network, or text. The job\n"
     "may be over, may have been killed, or may still be running. EVENTS may be -.\n"},
    {"doctor", "check the machines of a job before you start it"},
    {"store",
     "serve a TCPStore",
     {},
     "Usage: drun store [--port P] [--loopback] [--store-memory SIZE]\n"
     "\n"
     "Serves a TCPStore for PyTorch programs and torchrun until it gets a signal.\n"},
    {"help",
     "explain a topic or a command",
     {},
     "Usage: drun help [TOPIC]\n"
     "\n"
     "Explains a topic or a command; without TOPIC, lists them.\n"},
});

// The commands as the usage of drun shows them.
struct CommandForm {
  std::string_view command;
  std::string_view operands;
  std::string_view summary;
};
constexpr std::array kForms = std::to_array<CommandForm>({
    {"list", "", "list running jobs"},
    {"stop", "job...", "stop running jobs"},
    {"logs", "[job] [rank...] [-f]", "print lines of ranks"},
    {"status|stacks", "[job]", "inspect a running job"},
    {"report", "events... [-o file]", "make a report of a job"},
    {"doctor", "[options] [program]", "check the machines of a job"},
    {"store", "[options]", "serve a TCPStore"},
    {"help", "[topic]", "explain a topic or command"},
});

// drun's own exit codes.
struct OwnCode {
  std::string_view code;
  std::string_view meaning;
};
constexpr std::array kOwnCodes = std::to_array<OwnCode>({
    {"2", "usage"},
    {"120", "nodes missing"},
    {"121", "rejected by the coordinator"},
    {"122", "node lost"},
    {"123", "worker hung"},
    {"124", "time limit reached"},
    {"125", "system error"},
    {"126", "program not executable"},
    {"127", "program not found"},
    {"128+n", "stopped by signal n"},
});

std::string paragraph(std::string_view text) {
  return joined(wrapped(text, kColumns), "\n") + "\n";
}

// In the order of their first option, without that of hidden options.
std::vector<std::string_view> groups_of(std::span<const OptionSyntax> options) {
  std::vector<std::string_view> groups;
  for (const OptionSyntax& option : options) {
    const bool is_new = std::find(groups.begin(), groups.end(), option.group) == groups.end();
    if (is_new && !option.group.empty()) groups.push_back(option.group);
  }
  return groups;
}

std::string two_columns(std::string_view name, std::string_view text) {
  std::string line = "  " + std::string(name);
  line.resize(16, ' ');
  return line.append(text) + '\n';
}

std::string entry_text(const OptionSyntax& option) {
  std::string text = option.letter == 0 ? "      " : std::string("  -") + option.letter + ", ";
  text += option.name;
  if (option.value != OptionSyntax::Value::None) {
    const bool may_lack_value = option.value == OptionSyntax::Value::MayFollow;
    text.append(may_lack_value ? "[=" : " ").append(option.type).append(may_lack_value ? "]" : "");
  }
  const std::string new_line = '\n' + std::string(kTextAt, ' ');
  text += text.size() + 2 > kTextAt ? new_line : std::string(kTextAt - text.size(), ' ');
  return text + joined(wrapped(option.text, kColumns - kTextAt), new_line) + '\n';
}

std::string usage_text(const std::string& name) {
  const auto line = [](std::string form, std::string_view summary) {
    form.resize(47, ' ');
    return form.append(summary).append("\n");
  };
  const std::string form = name + " [options] [--] program [args...]";
  if (name == "torchrun") return "Usage: " + form + "\n";
  std::string text = line("Usage: " + form, "run a job");
  for (const CommandForm& each : kForms)
    text += line("       drun " + std::string(each.command) + " " + std::string(each.operands),
                 each.summary);
  return text;
}

std::string launcher_help_foot() {
  return "\n"
         "A program whose name ends in .py, and a module, run under python3 -u, taken from\n"
         "PYTHON_EXEC, the active virtual environment, or PATH. Any other program is\n"
         "executed. ${local_rank} in an argument is replaced by the worker's local rank.\n"
         "\n"
         "Exit code: 0 if every worker on every node returned 0; otherwise the code of the\n"
         "first worker that failed (128+n for signal n).\n" +
         paragraph("drun's own codes: " +
                   joined(kOwnCodes, ", ",
                          [](const OwnCode& each) {
                            return std::string(each.code) + " " + std::string(each.meaning);
                          }) +
                   " (docs/reference/exit-codes.md).");
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

std::string help_text(std::string_view head, std::span<const OptionSyntax> options,
                      std::string_view foot) {
  std::string text(head);
  for (const std::string_view group : groups_of(options)) {
    text.append("\n").append(group).append(":\n");
    for (const OptionSyntax& option : options) {
      if (option.group == group) text += entry_text(option);
    }
  }
  return text.append(foot);
}

std::string short_help(std::string_view invoked_as) {
  const std::string name(invoked_as);
  const bool is_torchrun = name == "torchrun";
  std::string text = usage_text(name);
  text +=
      "\n"
      "Starts a distributed job: a drop-in replacement for torchrun, for programs in\n"
      "any language.\n"
      "\n"
      "Common options:\n"
      "      --nproc-per-node N|auto|gpu workers per node [default: 1]\n"
      "      --nnodes N|MIN:MAX          nodes; MIN:MAX: elastic (drun help elastic)\n"
      "                                  [default: 1]\n"
      "      --node-rank N               rank of this node [default: 0]\n"
      "      --master-addr HOST          address of node 0 [default: 127.0.0.1]\n"
      "  -H, --hosts LIST                start the job on these hosts over ssh\n"
      "      --max-restarts N            restart a failed job up to N times\n"
      "                                  [default: 0]\n"
      "      --hang-timeout S            treat a worker as hung after S seconds\n"
      "                                  without activity\n"
      "      --tee SPEC, --log-dir DIR   labeled lines on the console, and log files\n"
      "      --bind-to core|numa|gpu     bind workers to cores [default: none]\n"
      "      --secret-file FILE          encrypt and authenticate traffic of nodes\n"
      "      --report FILE               write a report: FILE.html, .xml or JSON\n"
      "      --dry-run                   print the plan and exit\n"
      "\n"
      "Examples:\n"
      "  " +
      name + " --nproc-per-node=8 train.py --epochs=3\n  " + name +
      " --nnodes=3 --node-rank=0 --master-addr=gpu0 --nproc-per-node=8 train.py\n";
  if (is_torchrun) return text + "\ntorchrun --help-all lists every option.\n";
  return text +
         "  drun --hosts=gpu[0-2]:8 train.py\n"
         "  srun -N3 -c64 drun --nproc-per-node=8 train.py\n"
         "\n" +
         paragraph("drun --help-all lists every option. Topics of drun help: " +
                   joined(kTopics, ", ", &Topic::name) + ".");
}

std::string launcher_help_head(std::string_view invoked_as) {
  return usage_text(std::string(invoked_as)) +
         "\n"
         "Options may be written with - or _, and may be abbreviated while they are\n"
         "unambiguous. Most options can also be set by a variable (PET_NNODES=3) or by a\n"
         "line of the --config file (nnodes = 3). The command line takes precedence, then\n"
         "the variable, then the file. Words after the program are its own arguments.\n";
}

std::string full_help(std::string_view invoked_as, std::span<const OptionSyntax> options) {
  return help_text(launcher_help_head(invoked_as), options, launcher_help_foot());
}

std::string help_topics() {
  std::string text =
      "Usage: drun help TOPIC|COMMAND\n"
      "\n"
      "Topics:\n";
  for (const Topic& topic : kTopics) text += two_columns(topic.name, topic.summary);
  text += "\nCommands:\n";
  for (const Topic& command : kCommands) text += two_columns(command.name, command.summary);
  return text + "\ndrun --help-all lists every option. The documentation is in share/doc/drun.\n";
}

std::optional<std::string> topic_help(std::string_view name,
                                      std::span<const OptionSyntax> options) {
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  const std::string as_option = "--" + std::string(name);
  const auto named = std::find_if(options.begin(), options.end(), [&](const OptionSyntax& option) {
    return option.name == as_option;
  });
  const auto is_meant = [&](const Topic& topic) {
    return topic.name == name || (named != options.end() && named->group.starts_with(topic.group));
  };
  const auto* const topic = std::find_if(kTopics.begin(), kTopics.end(), is_meant);
  if (topic == kTopics.end()) return std::nullopt;
  std::vector<OptionSyntax> shown;
  for (const OptionSyntax& option : options)
    if (option.group.starts_with(topic->group)) shown.push_back(option);
  return help_text(topic->text, shown, "");
}

std::string_view command_like(std::string_view word) {
  std::string_view nearest;
  std::size_t least = 3;  // up to two typing errors, such as swapped letters
  for (const Topic& command : kCommands) {
    const std::size_t distance = edit_distance(word, command.name);
    const bool is_swapped = distance == 2 && word.size() == command.name.size() &&
                            std::is_permutation(word.begin(), word.end(), command.name.begin());
    const bool is_near = distance == 1 || is_swapped ||
                         (distance == 2 && command.name.size() >= 5 && word.size() >= 5);
    if (!is_near || distance >= least) continue;
    nearest = command.name;
    least = distance;
  }
  return nearest;
}

std::string_view helper_help_head(std::string_view name) {
  const auto* const found = std::find_if(kCommands.begin(), kCommands.end(),
                                         [name](const Topic& each) { return each.name == name; });
  return found == kCommands.end() ? std::string_view() : found->text;
}

std::string doctor_help(std::span<const OptionSyntax> options) {
  std::vector<OptionSyntax> shown;
  for (const OptionSyntax& option : options) {
    const std::string_view group = option.group;
    const bool is_about_nodes = group == "Job" || group.starts_with("drun doctor") ||
                                group.starts_with("Other hosts") || group.starts_with("Security");
    if (is_about_nodes) shown.push_back(option);
  }
  return help_text(
      "Usage: drun doctor [--json] [options] [program [args...]]\n"
      "\n"
      "Checks the machines of a job before you start it: limits, memory, GPUs, host\n"
      "names, clocks, and whether and how fast the nodes reach each other. Write the\n"
      "command of the job on each node (with --hosts, on one), with the word doctor in\n"
      "front. The program is not started. Node 0 prints a table of all nodes, then one\n"
      "line per problem or warning (docs/guide/doctor.md).\n",
      shown,
      "\n"
      "Exit code: 0 if there are no problems (there may be warnings), 1 if there are, 2\n"
      "usage, 120 nodes missing.\n");
}

std::string short_usage(std::string_view invoked_as) {
  const std::string name(invoked_as);
  return "usage: " + name +
         " [options] program [args...]\n"
         "try    " +
         name +
         " --nproc-per-node=2 hostname\n"
         "or     " +
         name + " --help\n";
}

// --- The manual page, in roff (groff_man(7))

namespace {

constexpr std::string_view kDescription = R"(.SH DESCRIPTION
\fBdrun\fR starts the workers of a distributed job, watches them, and stops, restarts and reports
the job as a unit.
It takes the command line of PyTorch's \fBtorchrun\fR, and starts programs in any language: each
worker is a process with \fBRANK\fR, \fBLOCAL_RANK\fR, \fBWORLD_SIZE\fR, \fBMASTER_ADDR\fR,
\fBMASTER_PORT\fR and the rest of torchrun's variables in its environment.
.PP
A \fIprogram\fR that ends in \fI.py\fR, and a module (\fB\-m\fR), is given to \fBpython3 \-u\fR.
Every other program is executed.
\fB${local_rank}\fR in an argument becomes the worker's local rank.
Words after the program are its own arguments; \fBdrun\fR does not look for options among them.
.PP
Every agent, one per node, is a \fBdrun\fR process with the same command line.
With several nodes start one on each, or give \fB\-\-hosts\fR, and \fBdrun\fR starts them over ssh.
Under Slurm, MPI launchers, PBS, LSF and Kubernetes \fBdrun\fR takes the nodes from there.
.PP
Started through a link named \fBtorchrun\fR, \fBdrun\fR has torchrun's defaults where the two
differ, and no helper commands.
.SH OPTIONS
An option may be written with \fB\-\fR or \fB_\fR between its words, and abbreviated to an
unambiguous prefix.
The command line has precedence over the environment, and the environment over the file that
\fB\-\-config\fR names.
)";

constexpr std::string_view kEnvironment = R"(.SH ENVIRONMENT
.TP
\fBPET_\fINAME\fR
The value of the option \fB\-\-\fIname\fR that the command line does not have, for example
\fBPET_NPROC_PER_NODE=4\fR for \fB\-\-nproc\-per\-node=4\fR.
A flag's value is \fB1\fR or \fB0\fR.
Options marked "no variable" ignore it.
.TP
\fBDRUN_SECRET\fR
The secret that all nodes of the job share, if \fB\-\-secret\-file\fR is not given.
.TP
\fBPYTHON_EXEC\fR
The Python interpreter of Python programs.
.TP
\fBLOGLEVEL\fR
The level of drun's own messages, if \fB\-\-log\-level\fR is not given.
.TP
\fBTORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE\fR
The label of a line, if \fB\-\-log\-line\-prefix\-template\fR is not given.
.SH EXIT STATUS
0 if every worker on every node returned 0; otherwise the code of the first worker that failed,
128+\fIn\fR for signal \fIn\fR.
With \fB\-\-exit\-code=torchrun\fR and under the name torchrun, 1 after any failure.
drun's own codes:
)";

constexpr std::string_view kExamples = R"(.SH EXAMPLES
Four workers on this machine:
.PP
.RS 4
.EX
drun \-\-nproc\-per\-node=4 ./train \-\-epochs=3
.EE
.RE
.PP
Three machines, started from any of them over ssh:
.PP
.RS 4
.EX
drun \-\-hosts=gpu[0\-2]:4 ./train
.EE
.RE
.PP
The same, started on each machine, with its own \fB\-\-node\-rank\fR:
.PP
.RS 4
.EX
drun \-\-nnodes=3 \-\-node\-rank=0 \-\-master\-addr=gpu0 \-\-nproc\-per\-node=4 ./train
.EE
.RE
.PP
Completion in bash, for this session:
.PP
.RS 4
.EX
source <(drun \-\-print\-completion bash)
.EE
.RE
.SH SEE ALSO
.BR drun\-perf (1),
.BR ssh (1)
)";

std::string synopsis() {
  std::string text =
      ".SH NAME\ndrun \\- start a distributed job on one or several machines\n" +
      std::string(".SH SYNOPSIS\n\\fBdrun\\fR [options] [\\-\\-] program [args...]\n");
  for (const CommandForm& each : kForms)
    text += ".br\n\\fBdrun " + roff_text(each.command) + "\\fR" +
            (each.operands.empty() ? "" : " " + roff_text(each.operands)) + "\n";
  return text;
}

std::string own_codes() {
  std::string text;
  for (const OwnCode& each : kOwnCodes)
    text += ".TP\n\\fB" + std::string(each.code) + "\\fR\n" + roff_text(each.meaning) + "\n";
  return text;
}

std::string option_text(const OptionSyntax& option, bool names_missing_variables) {
  std::string text = ".TP\n";
  if (option.letter != 0) text += std::string("\\fB\\-") + option.letter + "\\fR, ";
  text += "\\fB" + roff_text(option.name) + "\\fR";
  if (!option.type.empty()) {
    const bool may_follow = option.value == OptionSyntax::Value::MayFollow;
    text += (may_follow ? "[=\\fI" : " \\fI") + roff_text(option.type) + "\\fR" +
            (may_follow ? "]" : "");
  }
  text += '\n' + roff_text(option.text);
  if (names_missing_variables && !option.has_variable) text += " (no variable)";
  return text + '\n';
}

std::string launcher_options(const CommandSyntax& launcher) {
  std::string text;
  for (const std::string_view group : groups_of(launcher.options)) {
    text += ".SS " + roff_text(group) + '\n';
    for (const OptionSyntax& option : launcher.options)
      if (option.group == group) text += option_text(option, true);
  }
  return text;
}

// The first paragraph of the head, and the options that the launcher does not have.
std::string command_text(const CommandSyntax& command) {
  std::string text = ".SS drun " + roff_text(command.name) + '\n';
  text += roff_text(command.head.substr(0, command.head.find("\n\n"))) + '\n';
  const bool is_launchers = command.operand == CommandSyntax::Operand::Program;
  if (is_launchers) text += "Options of a job may be given as well.\n";
  for (const OptionSyntax& option : command.options) {
    if (option.group.empty()) continue;
    if (is_launchers && option.group != command.options.front().group) continue;
    text += option_text(option, false);
  }
  return text;
}

}  // namespace

std::string man_page(std::span<const CommandSyntax> commands) {
  std::string text = ".TH DRUN 1 2026-11-25 \"drun " + roff_text(kVersion) + "\"\n";
  text += synopsis() + std::string(kDescription);
  text += launcher_options(commands.front());
  text += ".SH COMMANDS\n";
  for (const CommandSyntax& command : commands.subspan(1)) text += command_text(command);
  return text + std::string(kEnvironment) + own_codes() + std::string(kExamples);
}

}  // namespace drun

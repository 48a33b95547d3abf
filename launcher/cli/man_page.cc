#include "launcher/cli/man_page.h"

#include <algorithm>
#include <vector>

#include "launcher/base/version.h"
#include "rendezvous/base/roff.h"

namespace drun {
namespace {

constexpr const char kSynopsis[] = R"(.SH NAME
drun \- start a distributed job on one or several machines
.SH SYNOPSIS
.B drun
.RI [ option ...]
.RB [ \-\- ]
.I program
.RI [ argument ...]
.br
.B drun store
.RI [ option ...]
.br
.B drun list
.RI [ option ...]
.br
.B drun status
.RI [ job ]
.RI [ option ...]
.br
.B drun stop
.IR job ...
.RI [ option ...]
.br
.B drun logs
.RI [ job ]
.RI [ rank ...]
.RI [ option ...]
.br
.B drun stacks
.RI [ job ]
.RI [ option ...]
.br
.B drun report
.IR events ...
.RI [ option ...]
.br
.B drun doctor
.RI [ option ...]
.RI [ program
.RI [ argument ...]]
.br
.B drun help
.RI [ topic ]
.SH DESCRIPTION
.B drun
starts the workers of a distributed job, watches them, and stops, restarts and reports the job as a unit.
It takes the command line of PyTorch's
.BR torchrun ,
and starts programs in any language: each worker is a process with
.BR RANK ,
.BR LOCAL_RANK ,
.BR WORLD_SIZE ,
.BR MASTER_ADDR ,
.B MASTER_PORT
and the rest of torchrun's variables in its environment.
.PP
A
.I program
that ends in
.IR .py ,
and a module
.RB ( \-m ),
is given to
.BR "python3 \-u" .
Every other program is executed.
.B ${local_rank}
in an argument becomes the worker's local rank.
Words after the program are its own arguments;
.B drun
does not look for options among them.
.PP
Every agent, one per node, is a
.B drun
process with the same command line.
With several nodes start one on each, or give
.BR \-\-hosts ,
and
.B drun
starts them over ssh.
Under Slurm, MPI launchers, PBS, LSF and Kubernetes
.B drun
takes the nodes from there.
.PP
Started through a link named
.BR torchrun ,
.B drun
has torchrun's defaults where the two differ, and no helper commands.
.SH OPTIONS
An option may be written with
.B \-
or
.B _
between its words, and abbreviated to an unambiguous prefix.
The command line has precedence over the environment, and the environment over the file that
.B \-\-config
names.
)";

constexpr const char kEnd[] = R"(.SH ENVIRONMENT
.TP
.BI PET_ NAME
The value of the option
.BI \-\- name
that the command line does not have, for example
.B PET_NPROC_PER_NODE=4
for
.BR \-\-nproc\-per\-node=4 .
A flag's value is
.B 1
or
.BR 0 .
Options marked "no variable" ignore it.
.TP
.B DRUN_SECRET
The secret that all nodes of the job share, if
.B \-\-secret\-file
is not given.
.TP
.B PYTHON_EXEC
The Python interpreter of Python programs.
.TP
.B LOGLEVEL
The level of drun's own messages, if
.B \-\-log\-level
is not given.
.TP
.B TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE
The label of a line, if
.B \-\-log\-line\-prefix\-template
is not given.
.SH EXIT STATUS
.TP
.B 0
Every worker of every node returned 0.
.TP
.I n
The first worker that failed returned
.IR n .
.TP
.RI 128+ n
The first worker that failed was ended by signal
.IR n ,
or
.B drun
itself was.
.TP
.B 1
Any failure, with
.B \-\-exit\-code=torchrun
and under the name torchrun.
.TP
.B 2
Usage error.
.TP
.B 120
Nodes are missing.
.TP
.B 121
This node was rejected.
.TP
.B 122
A node was lost.
.TP
.B 123
A worker hung.
.TP
.B 124
The time limit was reached.
.TP
.B 125
System error.
.TP
.B 126
The program is not executable.
.TP
.B 127
The program was not found.
.SH EXAMPLES
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
The same, started on each machine, with its own
.BR \-\-node\-rank :
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

std::string option_text(const OptionSyntax& option, bool names_missing_variables) {
  const KnownOption& known = option.known;
  std::string text = ".TP\n";
  if (known.letter != 0) text += std::string("\\fB\\-") + known.letter + "\\fR, ";
  text += "\\fB" + roff_text(known.name) + "\\fR";
  if (!option.type.empty()) {
    const bool may_follow = known.value == KnownOption::Value::MayFollow;
    text += (may_follow ? "[=\\fI" : " \\fI") + roff_text(option.type) + "\\fR" +
            (may_follow ? "]" : "");
  }
  text += '\n' + roff_text(option.text);
  if (names_missing_variables && !option.has_variable) text += " (no variable)";
  return text + '\n';
}

std::string launcher_options(const CommandSyntax& launcher) {
  std::vector<std::string_view> groups;
  for (const OptionSyntax& option : launcher.options) {
    const bool is_new = std::find(groups.begin(), groups.end(), option.group) == groups.end();
    if (is_new && !option.group.empty()) groups.push_back(option.group);
  }
  std::string text;
  for (const std::string_view group : groups) {
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
    if (is_launchers && option.group != command.options.front().group) continue;
    text += option_text(option, false);
  }
  return text;
}

}  // namespace

std::string man_page(std::span<const CommandSyntax> commands) {
  std::string text = ".TH DRUN 1 2026-11-25 \"drun " + roff_text(kVersion) + "\"\n";
  text += kSynopsis;
  text += launcher_options(commands.front());
  text += ".SH COMMANDS\n";
  for (const CommandSyntax& command : commands.subspan(1)) text += command_text(command);
  return text + kEnd;
}

}  // namespace drun

#include "launcher/cli/completion.h"

#include <algorithm>
#include <set>

#include "launcher/cli/help.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/options.h"
#include "rendezvous/base/text.h"
#include "tests/support/catch.h"
#include "tests/support/plans.h"

namespace drun {
namespace {

using Words = std::vector<std::string>;
using More = Completion::More;

const std::vector<CommandSyntax>& syntaxes() {
  static const std::vector<CommandSyntax> commands = command_syntaxes();
  return commands;
}

Completion completed(Words words, const std::string& name = "drun") {
  words.insert(words.begin(), name);
  return complete(words, syntaxes());
}

Words candidates(Words words, const std::string& name = "drun") {
  Words found;
  for (const Completion::Candidate& each : completed(std::move(words), name).candidates)
    found.push_back(each.word);
  return found;
}

TEST_CASE("option completion keeps the user's spelling, with dashes or underscores") {
  CHECK(candidates({"--nproc"}) == Words{"--nproc-per-node"});
  CHECK(candidates({"--nproc_"}) == Words{"--nproc_per_node"});
  CHECK(candidates({"--no-such"}).empty());
  CHECK(candidates({"--np", "2", "--rdzv-e"}) == Words{"--rdzv-endpoint"});
}

TEST_CASE("completion understands the abbreviations that drun accepts") {
  CHECK(candidates({"--max", "3", "--nn"}) == Words{"--nnodes"});  // --max-restarts
  CHECK(candidates({"--bin", "3", "--nn"}).empty());               // ambiguous: an error of drun
  CHECK(candidates({"-mr", "3", "--nn"}) == Words{"--nnodes"});
  CHECK(candidates({"-r3", "--nn"}) == Words{"--nnodes"});
  CHECK(candidates({"-bind_to", "c"}) == Words{"core"});
}

TEST_CASE("option values are completed after a space and after an equals sign") {
  CHECK(candidates({"--engine", ""}) == Words{"auto", "none"});
  CHECK(candidates({"--engine=a"}) == Words{"--engine=auto"});
  CHECK(candidates({"--rdzv-backend", "c"}) == Words{"c10d"});
  CHECK(candidates({"--nproc_per_node", ""}) == Words{"auto", "cpu", "gpu"});
  CHECK(candidates({"-bind-to", "gp"}) == Words{"gpu"});
  CHECK(candidates({"--signals-to-handle=SIGTERM,SIGUSR"}) ==
        Words{"--signals-to-handle=SIGTERM,SIGUSR1", "--signals-to-handle=SIGTERM,SIGUSR2"});
}

TEST_CASE("paths, programs and hosts are left to the shell to complete") {
  CHECK(completed({"--log-dir", ""}).more == More::Directories);
  CHECK(completed({"--config=x"}).more == More::Files);
  CHECK(completed({"--wrap", "gd"}).more == More::Programs);
  CHECK(completed({""}).more == More::Programs);
  CHECK(completed({"--", ""}).more == More::Programs);
  const Completion hosts = completed({"--hostfile", "list", "--include=a@"});
  CHECK(hosts.more == More::Hosts);
  CHECK(hosts.hostfile == "list");
  CHECK(hosts.stem == "--include=a@");
}

TEST_CASE("arguments after the program are left to the program's own completion") {
  CHECK(completed({"--np", "2", "./train", ""}).program == 3);
  CHECK(completed({"--standalone", "-m", "train", "--e"}).program == 3);
  CHECK(completed({"--", "./train", "--log"}).program == 2);
  CHECK(completed({"--mca", "btl", "self", "./train", "--log"}).program == 4);
  CHECK_FALSE(completed({"./train"}).program.has_value());
}

TEST_CASE("helper commands are completed for drun, but not for torchrun") {
  CHECK(candidates({"st"}) == Words{"store", "status", "stop", "stacks"});
  CHECK(candidates({"st"}, "/usr/bin/torchrun").empty());
  CHECK(candidates({"--standalone", "st"}).empty());
  CHECK(candidates({"status", "--w"}) == Words{"--watch"});
  CHECK(completed({"status", ""}).more == More::Jobs);
  CHECK(completed({"stacks", "--json", ""}).more == More::Jobs);
  CHECK(completed({"status", "one", ""}).more == More::Nothing);
  CHECK(completed({"stop", "one", ""}).more == More::Jobs);
  CHECK(completed({"stop", "--timeout", "5", ""}).more == More::Jobs);
  CHECK(completed({"logs", "--follow", ""}).more == More::Jobs);
  CHECK(completed({"logs", "-g", "x", ""}).more == More::Jobs);
  CHECK(completed({"logs", "one", ""}).more == More::Nothing);
  CHECK(completed({"report", "one", ""}).more == More::Files);
  CHECK(completed({"report", "-o", ""}).more == More::Files);
  CHECK(candidates({"report", "--t"}) == Words{"--text"});
  CHECK(candidates({"rep"}) == Words{"report"});
  CHECK(completed({"doctor", "--hosts", ""}).more == More::Hosts);
}

TEST_CASE("empty and invalid command lines are completed as far as possible") {
  CHECK(complete({}, syntaxes()) == Completion{});
  CHECK(candidates({}).empty());
  CHECK(candidates({"--no-such", "--eng"}) == Words{"--engine"});
  CHECK(candidates({"--no-such=x"}).empty());
  CHECK(candidates({"--standalone=x"}).empty());
  CHECK(candidates({"-"}).size() > 50);
}

TEST_CASE("the output for a shell is a line with the kind, then one line per candidate") {
  CHECK(completion_lines(completed({"--engine", "a"})) == ":nothing\nauto\n");
  CHECK(completion_lines(completed({"./train", ""})) == ":program 1\n");
  CHECK_THAT(completion_lines(completed({"--standa"})),
             ContainsSubstring(":nothing\n--standalone\trun on one node"));
}

TEST_CASE("every value that completion offers is accepted") {
  int count = 0;
  for (const OptionSyntax& option : syntaxes().front().options) {
    for (const std::string& choice : choices_of(option.type)) {
      const HostFacts host;
      const std::string word = std::string(option.name) + "=" + choice;
      CAPTURE(word);
      const bool is_template = choice.find(':') != choice.npos;
      CHECK((is_template || test::parse_line({word, "./train"}, host, "drun").has_value()));
      ++count;
    }
  }
  CHECK(count > 30);
}

TEST_CASE("option types without alternatives offer no values") {
  CHECK(choices_of("N|MIN:MAX").empty());
  CHECK(choices_of("FILE").empty());
  CHECK(choices_of("slot|node|ppr:N:node") == Words{"slot", "node"});
}

TEST_CASE("a completion script is for the name under which drun was started") {
  const std::string bash = completion_script(Shell::Bash, "torchrun", syntaxes());
  CHECK_THAT(bash, ContainsSubstring("complete -F _torchrun torchrun\n"));
  CHECK(bash.find("drun") == bash.npos);
  CHECK_THAT(completion_script(Shell::Zsh, "drun", syntaxes()), ContainsSubstring("#compdef drun"));
  CHECK_THAT(completion_script(Shell::Fish, "; rm", syntaxes()),
             ContainsSubstring("complete -c drun "));
  const std::string tcsh = completion_script(Shell::Tcsh, "drun", syntaxes());
  CHECK_THAT(tcsh, ContainsSubstring("'n/--engine/(auto none)/'"));
  CHECK_THAT(tcsh, ContainsSubstring("'n/--log-dir/d/'"));
}

TEST_CASE("the completion script is printed for known shells") {
  const HostFacts host;
  const auto printed = test::parse_line({"--print-completion", "zsh"}, host, "drun");
  REQUIRE(printed.has_value());
  CHECK_THAT(std::get<ShowText>(*printed).text, StartsWith("#compdef drun"));
  CHECK_THAT(test::usage_error(test::parse_line({"--print_completion=csh"}, host, "drun")),
             ContainsSubstring("expected one of bash, zsh, tcsh, fish"));
}

TEST_CASE("the manual page has every option and every helper command") {
  const std::string page = man_page(syntaxes());
  for (const OptionSyntax& option : syntaxes().front().options) {
    CAPTURE(option.name);
    const bool is_there = page.find("\\fB" + roff_text(option.name) + "\\fR") != page.npos;
    CHECK(is_there != option.group.empty());
  }
  for (const char* const command :
       {"store", "status", "list", "stop", "logs", "stacks", "report", "doctor"})
    CHECK_THAT(page, ContainsSubstring(std::string(".SS drun ") + command + "\n"));
}

TEST_CASE("roff requests and escapes in manual page text are escaped") {
  CHECK(roff_text(".SH x") == "\\&.SH x");
  CHECK(roff_text("a\n'b") == "a\n\\&\\(aqb");
  CHECK(roff_text("a\\b-c~^`") == "a\\eb\\-c\\(ti\\(ha\\(ga");
}

}  // namespace
}  // namespace drun

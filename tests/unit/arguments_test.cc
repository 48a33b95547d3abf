#include "launcher/cli/arguments.h"

#include "tests/support/catch.h"
#include "tests/support/results.h"

namespace drun {
namespace {

using Words = std::vector<std::string>;
using Value = OptionSyntax::Value;

const std::vector<OptionSyntax> kKnown{
    {.name = "--nnodes"},
    {.name = "--nproc-per-node"},
    {.name = "--log-dir"},
    {.name = "--redirects", .letter = 'r'},
    {.name = "--tee", .letter = 't'},
    {.name = "--module", .letter = 'm', .value = Value::None},
    {.name = "--standalone", .value = Value::None},
    {.name = "--log-level", .is_torchruns = false},
    {.name = "--report", .is_torchruns = false},
    {.name = "--dry-run", .value = Value::MayFollow, .is_torchruns = false},
};

Arguments split(const Words& words) { return test::value_of(split_arguments(words, kKnown)); }

std::string split_error(const Words& words) {
  return test::usage_error(split_arguments(words, kKnown));
}

}  // namespace

TEST_CASE("option values are accepted in every form that torchrun accepts") {
  const auto [words, option] = GENERATE(table<Words, GivenOption>({
      {{"--nproc-per-node=2", "p"}, {"--nproc-per-node", "2"}},
      {{"--nproc_per_node=2", "p"}, {"--nproc-per-node", "2"}},
      {{"--nproc_per-node", "2", "p"}, {"--nproc-per-node", "2"}},
      {{"--nproc-per", "2", "p"}, {"--nproc-per-node", "2"}},
      {{"--nproc_per", "2", "p"}, {"--nproc-per-node", "2"}},
      {{"--nproc", "2", "p"}, {"--nproc-per-node", "2"}},
      {{"--redirect=3", "p"}, {"--redirects", "3"}},
      {{"--redirects=", "p"}, {"--redirects", ""}},
      {{"--log-dir=a=b", "p"}, {"--log-dir", "a=b"}},
      {{"-r3", "p"}, {"--redirects", "3"}},
      {{"-r=3", "p"}, {"--redirects", "3"}},
      {{"-r", "3", "p"}, {"--redirects", "3"}},
      {{"-t", "0:1,1:2", "p"}, {"--tee", "0:1,1:2"}},
      {{"-t0:1,1:2", "p"}, {"--tee", "0:1,1:2"}},
      {{"-m", "p"}, {"--module", std::nullopt}},
      {{"--modu", "p"}, {"--module", std::nullopt}},
      {{"--stand", "p"}, {"--standalone", std::nullopt}},
      {{"--nnodes", "-1", "p"}, {"--nnodes", "-1"}},
      {{"--nnodes", "-0.5", "p"}, {"--nnodes", "-0.5"}},
      {{"--log-dir", "-", "p"}, {"--log-dir", "-"}},
      {{"--dry-run", "p"}, {"--dry-run", std::nullopt}},
      {{"--dry-run=json", "p"}, {"--dry-run", "json"}},
  }));
  CAPTURE(words);
  const Arguments arguments = split(words);
  CHECK(arguments.options == std::vector<GivenOption>{option});
  CHECK(arguments.program == "p");
  CHECK(arguments.program_arguments.empty());
}

TEST_CASE("short flags and a short option can be combined in one argument") {
  CHECK(split({"-mr3", "p"}).options ==
        std::vector<GivenOption>{{"--module", std::nullopt}, {"--redirects", "3"}});
  CHECK(split({"-mr", "3", "p"}).options ==
        std::vector<GivenOption>{{"--module", std::nullopt}, {"--redirects", "3"}});
}

TEST_CASE("arguments after the program are not parsed") {
  // torchrun fails on the first list: it treats --r as an ambiguous torchrun option.
  const Words rest = GENERATE(Words{"--r=16", "--log", "x", "--mo", "0.9"}, Words{"--nnodes=9"},
                              Words{"--", "--standalone"}, Words{"-r"}, Words{"", "-"});
  Words words{"--nnodes=2", "a.py"};
  words.insert(words.end(), rest.begin(), rest.end());
  const Arguments arguments = split(words);
  CHECK(arguments.options == std::vector<GivenOption>{{"--nnodes", "2"}});
  CHECK(arguments.program == "a.py");
  CHECK(arguments.program_arguments == rest);
}

TEST_CASE("two dashes end the options, so a program can have any name") {
  const Arguments arguments = split({"--standalone", "--", "--nnodes", "3"});
  CHECK(arguments.program == "--nnodes");
  CHECK(arguments.program_arguments == Words{"3"});
  CHECK(split({"-"}).program == "-");
  CHECK_FALSE(split({"--nnodes=2"}).program);
  CHECK_FALSE(split({"--"}).program);
}

TEST_CASE("repeated options keep their order") {
  CHECK(split({"--nnodes=1", "--nnodes=2", "p"}).options ==
        std::vector<GivenOption>{{"--nnodes", "1"}, {"--nnodes", "2"}});
}

TEST_CASE("drun's own options do not make an option prefix ambiguous that torchrun accepts") {
  CHECK(split({"--log=x", "p"}).options.at(0).name == "--log-dir");
  CHECK(split({"--re=1", "p"}).options.at(0).name == "--redirects");
  CHECK(split({"--log-l=x", "p"}).options.at(0).name == "--log-level");
}

TEST_CASE("the error for an invalid option names the option and the remedy") {
  CHECK(split_error({"--n=2", "p"}) ==
        "--n could be --nnodes or --nproc-per-node; write more characters");
  CHECK(split_error({"--nprocs-per-node=2", "p"}) ==
        "unknown option --nprocs-per-node; did you mean --nproc-per-node?");
  CHECK(split_error({"--zzz", "p"}) ==
        "unknown option --zzz; options of the program must follow the program");
  CHECK(split_error({"-x", "p"}) ==
        "unknown option -x; options of the program must follow the program");
  CHECK(split_error({"-mx", "p"}) ==
        "unknown option -mx; options of the program must follow the program");
  CHECK(split_error({"--standalone=1", "p"}) == "--standalone=1: --standalone takes no value");
  CHECK(split_error({"-m=1", "p"}) == "-m=1: -m takes no value");
  CHECK(split_error({"--nnodes"}) == "--nnodes requires a value; write --nnodes=VALUE");
  CHECK(split_error({"-r"}) == "-r requires a value; write --redirects=VALUE");
  CHECK(split_error({"--log-dir", "--nnodes=2", "p"}) ==
        "--log-dir requires a value, but \"--nnodes=2\" follows; if that is the value, write "
        "--log-dir=--nnodes=2");
}

TEST_CASE("the error for another launcher's option names drun's equivalent") {
  CHECK(split_error({"-N4", "p"}) ==
        "unknown option -N; use --nproc-per-node=N (mpirun's) or --nnodes=N (srun's)");
  CHECK(split_error({"-npernode", "2", "p"}) == "unknown option -npernode; use --nproc-per-node=N");
  CHECK(split_error({"--num_gpus=8", "p"}) == "unknown option --num_gpus; use --nproc-per-node=N");
  CHECK(split_error({"-wdir", "/data", "p"}) ==
        "unknown option -wdir; start drun in that directory: cd DIR && drun ...");
  CHECK(counterpart("").empty());
  CHECK(counterpart("--").empty());
}

TEST_CASE("a pair option uses the next two arguments as a name and a value") {
  const std::vector<OptionSyntax> known{
      {.name = "--mca", .value = OptionSyntax::Value::Pair, .may_have_one_dash = true}};
  const auto of = [&known](const Words& words) { return split_arguments(words, known); };
  const auto pairs = of({"-mca", "pml", "ob1", "--mca", "btl", "^openib", "p", "-mca", "a", "b"});
  REQUIRE(pairs);
  CHECK(pairs->options == std::vector<GivenOption>{{"--mca", "pml=ob1"}, {"--mca", "btl=^openib"}});
  CHECK(pairs->program_arguments == Words{"-mca", "a", "b"});
  CHECK(of({"--mca=btl=self", "p"})->options.at(0).value == "btl=self");
  for (const Words& short_ones : {Words{"--mca"}, Words{"--mca", "btl"}, Words{"--mca", "-x", "p"}})
    CHECK(of(short_ones).error().message == "--mca requires two words: a name and a value");
}

TEST_CASE("two dashes are not accepted as the value of an option") {
  CHECK_THAT(split_error({"--log-dir", "--", "p"}), ContainsSubstring("requires a value"));
}

}  // namespace drun

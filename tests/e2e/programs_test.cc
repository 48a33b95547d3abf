// Runs unmodified programs of several kinds.

#include "tests/support/catch.h"
#include "tests/support/job.h"
#include "tests/support/places.h"

namespace drun::testing {

TEST_CASE("scripts and modules run as they would without drun") {
  TemporaryDirectory directory;
  write_file(directory.file("script"), "#!/bin/sh\necho \"sh $RANK $1\"\n", true);
  write_file(directory.file("plain"), "echo \"plain $RANK $1\"\n", true);  // no #!: sh runs it
  write_file(directory.file("program.py"),
             "import os, sys\nprint('py', os.environ['RANK'], sys.argv[1])\n");
  write_file(directory.file("executable.py"), "#!/bin/sh\necho \"forced $RANK $1\"\n", true);
  const auto [words, line] = GENERATE_COPY(table<Words, std::string>({
      {{"./script", "x"}, "sh 0 x\n"},
      {{"./plain", "x"}, "plain 0 x\n"},
      {{"program.py", "x"}, "py 0 x\n"},
      {{"-m", "program", "x"}, "py 0 x\n"},
      {{"--no-python", "./executable.py", "x"}, "forced 0 x\n"},
      {{"sh", "-c", "echo $0 $RANK", "x"}, "x 0\n"},
  }));
  Launch launch = job({"--standalone"}, words);
  launch.directory = directory.path();
  const Ended ended = run(launch);
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK(ended.out == line);
}

TEST_CASE("a program's arguments are never parsed as drun's options") {
  const Ended ended = run(job(
      {"--standalone"}, {"printf", "%s\n", "--r=16", "--log", "--nproc-per-node=9", "--", "-m"}));
  INFO(ended.err);
  CHECK(ended.out == "--r=16\n--log\n--nproc-per-node=9\n--\n-m\n");
}

TEST_CASE("pass-local-rank gives each program its local rank as an argument") {
  const Ended ended = run(job({"--standalone", "--nproc-per-node=2", "--pass-local-rank"},
                              {"sh", "-c", "echo $RANK $1", "sh"}));
  INFO(ended.err);
  CHECK(ended.code != 0);  // sh itself gets --local-rank and rejects it
  const Ended taken =
      run(job({"--standalone", "--nproc-per-node=2", "--pass-local-rank"}, {"echo", "hello"}));
  CHECK_THAT(taken.out, ContainsSubstring("--local-rank=0 hello\n") &&
                            ContainsSubstring("--local-rank=1 hello\n"));
}

TEST_CASE("C++ workers with worker_lib form a group under drun, on one node and on three") {
  const auto [example, sign] = GENERATE(table<std::string, std::string>(
      {{"p2p", "rank"}, {"all_reduce", ""}, {"train", "all ranks have identical weights"}}));
  const Ended one =
      run(job({"--standalone", "--nproc-per-node=2"}, {built("examples/" + example)}), 100s);
  INFO(one.out << one.err);
  CHECK(one.code == 0);
  CHECK_THAT(one.out, ContainsSubstring(sign));

  const std::string port = std::to_string(free_port());
  std::vector<std::unique_ptr<Running>> nodes;
  for (const std::string node : {"1", "2", "0"}) {
    nodes.push_back(std::make_unique<Running>(
        job({"--nnodes=3", "--node-rank=" + node, "--master-port=" + port},
            {built("examples/" + example)})));
  }
  std::string all;
  for (const auto& node : nodes) {
    const Ended ended = node->wait(100s);
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
    all += ended.out;
  }
  CHECK_THAT(all, ContainsSubstring(sign));
}

}  // namespace drun::testing

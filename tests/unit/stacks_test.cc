#include "agent/process/proc.h"
#include "agent/stacks/evidence.h"
#include "agent/stacks/proc_text.h"
#include "agent/stacks/stack_trace.h"
#include "tests/support/catch.h"

namespace drun::agent {
namespace {

using Frames = std::vector<std::string>;

StackGroup group(int rank, std::vector<std::string> lines) {
  return {.ranks = {{rank, rank}}, .source = "gdb", .lines = std::move(lines)};
}

}  // namespace

TEST_CASE("gdb output is parsed with the main thread first, without addresses and arguments") {
  const auto threads = parse_gdb(
      "[New LWP 1235]\n"
      "0x00007f2a in clock_nanosleep () from /lib/x86_64-linux-gnu/libc.so.6\n"
      "\n"
      "Thread 2 (Thread 0x7f2a16c0 (LWP 1235) \"courier-3\"):\n"
      "#0  0x00007f2a1 in poll () from /lib/x86_64-linux-gnu/libc.so.6\n"
      "#1  0x000055d9 in drun::Group::run (this=0x7ffe, call=...) at /src/lib/group.cc:120\n"
      "#2  std::function<void (int)>::operator() (this=0x1, __args#0=3) at "
      "/usr/inc/std_func.h:590\n"
      "\n"
      "Thread 1 (Thread 0x7f2a2740 (LWP 1234) \"train\"):\n"
      "#0  0x00007f2a in clock_nanosleep () from /lib/x86_64-linux-gnu/libc.so.6\n"
      "#1  <signal handler called>\n"
      "#2  (anonymous namespace)::step () at train.cc:9\n"
      "#3  0x000055d9deadbeef in ?? ()\n"
      "[Inferior 1 (process 1234) detached]\n");
  REQUIRE(threads.size() == 2);
  CHECK(threads[0].name == "train");
  CHECK(threads[0].frames == Frames{"clock_nanosleep (libc.so.6)", "<signal handler called>",
                                    "(anonymous namespace)::step (train.cc:9)", "??"});
  CHECK(threads[1].name == "courier-3");
  CHECK(threads[1].frames == Frames{"poll (libc.so.6)", "drun::Group::run (group.cc:120)",
                                    "std::function<void (int)>::operator() (std_func.h:590)"});
}

TEST_CASE("eu-stack output is parsed with modules and without") {
  const auto threads = parse_eu_stack(
      "PID 77 - process\n"
      "TID 77:\n"
      "#0  0x00007f2a poll - /lib/x86_64-linux-gnu/libc.so.6\n"
      "#1  0x000055d9 main\n"
      "TID 78:\n"
      "#0  0x00007f2b __nanosleep@@GLIBC_2.2.5 - /lib/x86_64-linux-gnu/libc.so.6\n"
      "#1  0x000055d9 - /usr/bin/sleep\n"
      "#2  0x000055d9\n");
  REQUIRE(threads.size() == 2);
  CHECK(threads[0].frames == Frames{"poll (libc.so.6)", "main"});
  CHECK(threads[1].frames == Frames{"__nanosleep (libc.so.6)", "?? (sleep)", "??"});
}

TEST_CASE("py-spy output is parsed with the program's line numbers") {
  const auto threads = parse_py_spy(
      "Process 1234: python3 -u train.py\n"
      "Python v3.11.2 (/usr/bin/python3.11)\n"
      "\n"
      "Thread 1234 (idle): \"MainThread\"\n"
      "    all_reduce (torch/distributed/distributed_c10d.py:2501)\n"
      "    <module> (train.py:12)\n"
      "Thread 0x7F2A (active+gil): \"loader\"\n"
      "    run (threading.py:910)\n");
  REQUIRE(threads.size() == 2);
  CHECK(threads[0] ==
        ThreadStack{.name = "MainThread",
                    .frames = {"all_reduce (distributed_c10d.py:2501)", "<module> (train.py:12)"}});
  CHECK(threads[1].name == "loader");
}

TEST_CASE("text without stacks yields no threads") {
  for (const char* text :
       {"", "\n\n", "#", "#0", "Thread", "TID ", "ptrace: Operation not permitted.\n", "#0  ()\n",
        "Thread 1 (x):\n#\n", "    (\n", "Thread 1 (idle): \"\"\n    ()\n    )\n"}) {
    CAPTURE(text);
    CHECK(parse_gdb(text).empty());
    CHECK(parse_eu_stack(text).empty());
    for (const ThreadStack& thread : parse_py_spy(text)) CHECK(thread.frames.size() <= 1);
  }
  std::string many;
  for (int i = 0; i < 1000; ++i)
    many += "Thread 1 (LWP 1):\n" + std::string(200, '#') + "\n#0  f ()\n";
  CHECK(parse_gdb(many).size() == kMostThreads);
}

TEST_CASE("a thread from /proc shows its state, kernel function and system call") {
  const ThreadStack thread = thread_of({.comm = "train\n",
                                        .stat = "12 (tr) in) S 1 12 12",
                                        .wchan = "futex_wait_queue",
                                        .syscall = "202 0x1 0x2",
                                        .kernel_stack = "[<0>] futex_wait+0x1/0x2\n[<0>] x\n"});
  CHECK(thread.name == "train");
#ifdef __x86_64__
  CHECK(thread.frames == Frames{"sleeping in futex_wait_queue (futex)"});
  CHECK(thread_of({.stat = "1 (x) S 1 1",
                   .wchan = "0",
                   .syscall = "202 0x1",
                   .kernel_stack = "[<0>] futex_do_wait+0x1/0x2\n[<0>] do_futex+0x1/0x2\n"})
            .frames == Frames{"sleeping in futex_do_wait (futex)"});
  CHECK(thread_of({.stat = "1 (x) D 1 1",
                   .wchan = "rpc_wait",
                   .syscall = "0 0x1",
                   .kernel_stack = "[<0>] rpc_wait+0x1/0x2\n[<0>] nfs_file_read+0x1/0x2\n"
                                   "[<0>] __x64_sys_read+0x1/0x2\n[<0>] x64_sys_call+0x1/0x2\n"
                                   "[<0>] do_syscall_64+0x1/0x2\n"
                                   "[<0>] entry_SYSCALL_64_after_hwframe+0x1/0x2\n"})
            .frames == Frames{"stuck in the kernel in rpc_wait (read)", "nfs_file_read (kernel)"});
#endif
  CHECK(thread_of({.stat = "1 (x) S 1 1",
                   .wchan = "kthread",
                   .kernel_stack = "[<0>] kthread+0x1/0x2\n[<0>] wait+0x1/0x2\n"
                                   "[<0>] __arm64_sys_ppoll+0x1/0x2\n[<0>] invoke_syscall+0x1/0x2\n"
                                   "[<0>] el0_svc_common.constprop.0+0x1/0x2\n"
                                   "[<0>] do_el0_svc+0x1/0x2\n[<0>] el0t_64_sync+0x1/0x2\n"})
            .frames == Frames{"sleeping in kthread", "wait (kernel)"});
  CHECK(thread_of({.stat = "1 (x) D 1 1", .wchan = "0", .syscall = "running"}).frames ==
        Frames{"stuck in the kernel"});
  CHECK(thread_of({}).frames == Frames{"in an unknown state"});
}

TEST_CASE("a worker's process tree contains only itself and its descendants") {
  const std::vector<ProcessStat> all{{.pid = 30, .parent = 20}, {.pid = 10, .parent = 1},
                                     {.pid = 20, .parent = 10}, {.pid = 11, .parent = 1},
                                     {.pid = 40, .parent = 1},  {.pid = 51, .parent = 52},
                                     {.pid = 52, .parent = 51}};
  const std::vector<int> tops{10, 11, 0, 99};
  const auto trees = trees_below(tops, all, 3);
  REQUIRE(trees.size() == 4);
  REQUIRE(trees[0].size() >= 2);
  CHECK(trees[0].front().pid == 10);
  CHECK(trees[0].size() == 3);
  CHECK(trees[1].size() == 1);
  CHECK(trees[2].empty());
  CHECK(trees[3].empty());
}

TEST_CASE("the reason why ptrace is forbidden is reported") {
  const std::string root = "Name:\tx\nCapEff:\t000001ffffffffff\n";
  const std::string user = "Name:\tx\nCapEff:\t0000000000000000\n";
  CHECK(ptrace_objection(std::nullopt, user).empty());
  CHECK(ptrace_objection("0\n", user).empty());
  CHECK(ptrace_objection("2\n", root).empty());
  CHECK(ptrace_objection("1\n", user) ==
        "ptrace forbidden: /proc/sys/kernel/yama/ptrace_scope is 1");
  CHECK_FALSE(ptrace_objection("3\n", root).empty());
}

TEST_CASE("ranks in the same state have the same lines") {
  const auto rank = [](const std::string& address, const std::string& thread, bool swapped) {
    std::vector<ThreadStack> threads{{"train", {"f", "main"}},
                                     {"courier-" + thread, {"g (0x" + address + ")"}},
                                     {"courier-7", {"g (0xabc)"}},
                                     {"watch", {"h"}}};
    if (swapped) std::swap(threads[1], threads[3]);
    return stack_lines(
        {{.name = "train", .state = "sleeping", .source = "gdb", .threads = threads}});
  };
  CHECK(rank("12f", "1", false) == rank("9e", "22", true));
  CHECK(rank("12f", "1", false) == Frames{"process train", "  thread train", "    f", "    main",
                                          "  thread courier-, and 1 alike", "    g (0x?)",
                                          "  thread watch", "    h"});
}

TEST_CASE("the main thread is first, threads that sleep alike are one, and idle ones are last") {
  const auto asleep = [](const std::string& name, const std::string& place) {
    return ThreadStack{name, {"sleeping in " + place}};
  };
  const auto lines = stack_lines({{.name = "python3",
                                   .state = "sleeping",
                                   .source = "/proc",
                                   .threads = {asleep("python", "hrtimer_nanosleep"),
                                               asleep("cuda00001400006", "poll"),
                                               asleep("cuda-EvtHandlr", "poll"),
                                               asleep("pt_nccl_heartbt", "poll"),
                                               asleep("pt_nccl_watchdg", "futex"),
                                               asleep("python", "poll"),
                                               asleep("gloo", "poll"),
                                               asleep("python", "poll"),
                                               asleep("python", "futex"),
                                               {"pt_autograd_0", {"backward (train.py:3)"}}}}});
  CHECK(lines == Frames{"process python3", "  thread python", "    sleeping in hrtimer_nanosleep",
                        "  thread pt_autograd_", "    backward (train.py:3)", "  thread python",
                        "    sleeping in futex", "  threads gloo, python, and 1 alike",
                        "    sleeping in poll",
                        "  threads cuda, cuda-EvtHandlr, pt_nccl_heartbt, pt_nccl_watchdg: idle"});
  const auto python = stack_lines({{.name = "python3",
                                    .source = "py-spy",
                                    .threads = {{"Thread-1", {"f"}}, {"MainThread", {"g"}}}}});
  CHECK(python ==
        Frames{"process python3", "  thread MainThread", "    g", "  thread Thread-", "    f"});
}

TEST_CASE("a stopped process is marked as stopped") {
  const auto lines =
      stack_lines({{.name = "train", .state = "stopped", .source = "/proc", .threads = {}}});
  CHECK(lines == Frames{"process train, stopped"});
}

TEST_CASE("equal stacks of many ranks form one group, and rare stacks are listed last") {
  Evidence evidence;
  for (int rank = 0; rank < 64; ++rank) {
    Evidence one;
    one.groups.push_back(group(rank, {rank == 7 ? "there" : "here"}));
    one.notes = {"gdb is not installed"};
    merge(evidence, one);
  }
  const auto lines = evidence_lines(evidence, 100);
  CHECK(lines == Frames{"ranks 0-6, 8-63: (gdb)", "  here", "rank 7: (gdb)", "  there",
                        "note: gdb is not installed"});
  CHECK(evidence_lines(evidence, 3) ==
        Frames{"ranks 0-6, 8-63: (gdb)", "  here", "... 3 more lines"});
}

TEST_CASE("rank ranges stay sorted and merged in any insertion order") {
  RankRanges ranges;
  for (const int rank : {5, 1, 2, 9, 3, 8, 5}) add_rank(ranges, rank);
  CHECK(ranges == RankRanges{{1, 3}, {5, 5}, {8, 9}});
  CHECK(ranks_text(ranges) == "ranks 1-3, 5, 8, 9");
  CHECK(count_of(ranges) == 6);
  CHECK(contains(ranges, 9));
  CHECK_FALSE(contains(ranges, 4));
}

TEST_CASE("evidence beyond the limit keeps the small groups and counts the dropped ranks") {
  Evidence evidence;
  for (int rank = 0; rank < 200; ++rank) {
    Evidence one;
    one.groups.push_back(
        group(rank, std::vector<std::string>(400, std::to_string(rank) + std::string(300, 'x'))));
    merge(evidence, one);
  }
  Evidence crowd;
  crowd.groups.push_back({.ranks = {{300, 399}}, .source = "gdb", .lines = {"crowd"}});
  merge(evidence, crowd);
  for (int i = 0; i < 100; ++i) evidence.notes.push_back("note " + std::to_string(i));
  shrink(evidence);
  std::size_t bytes = 0;
  std::size_t ranks = evidence.ranks_left_out;
  for (const StackGroup& each : evidence.groups) {
    ranks += count_of(each.ranks);
    CHECK(each.lines.size() <= kMostStackLines);
    for (const std::string& line : each.lines) bytes += line.size();
  }
  CHECK(bytes <= kEvidenceBytes);
  CHECK(ranks == 300);
  CHECK(ranks_text(evidence.groups.front().ranks) == "ranks 300-399");
  const Evidence once = evidence;
  shrink(evidence);
  CHECK(evidence == once);
  CHECK(evidence.notes.size() == kMostEvidenceNotes);
}

}  // namespace drun::agent

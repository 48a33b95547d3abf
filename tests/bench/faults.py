#!/usr/bin/env python3
"""Injects faults into jobs and compares drun's diagnosis with what was injected.

    tests/bench/faults.py build/bin/drun [--python PYTHON] [--count 200] [--healthy 100] [--seed 1]
                          [--torchrun PATH] [--kinds NAME,...] [--markdown]
    tests/bench/faults.py build/bin/drun --gpu [--seed 1] [--kinds NAME,...] [--markdown]

Ten kinds of faults, each the same number of times, in worker_lib jobs (tests/workers/faulty_rank.cc, which has to be built) and, with
--python, in PyTorch jobs on CPUs (tests/workers/torch_faults.py; the Python needs torch). The jobs have 2 or 3 nodes of one machine
(--local-nodes) and up to 4 ranks. The seed chooses the rank, the step, the number of nodes and the variant of each fault.

A diagnosis is right if the class is (and, where a record has them, the error and the cause), and if its ranks are: the faulty rank is among them, and not more than half of the other ones. In a
job of 2 ranks that disagree, both count as right. For a network fault no rank, or also the peers of the faulty one, count as right; for
a lost node its number or a rank on it. Its time is from drun's first event of a failure or of a suspicion until the report is written.

--gpu replays faults that need a GPU: tests/bench/gpu_faults.json has the texts of real failures. Each text is one job of drun for each
order in which the ranks can fail: the faulty one last, at the same time, and first. The nodes of a fault with lines of the kernel log are
drun processes of their own, each with a file in place of its /dev/kmsg, which needs root. No GPU is involved.

Kernel kills for memory need root and a cgroup (v1 or v2) that may be created. Without that they are injected with --inject=oom.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import datetime
import json
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
REPLAY_JOB = HERE.parent / "workers" / "replayed_fault.py"
GPU_FAULTS = HERE / "gpu_faults.json"
TORCH_JOB = HERE.parent / "workers" / "torch_faults.py"
HANG_TIMEOUT = 3  # seconds; a loaded machine needs some
MOST_SECONDS = 150  # of a job


@dataclasses.dataclass
class Fault:
    kind: str
    job: str  # "torch" or "worker_lib"
    name: str  # of the program's fault
    wanted: str  # the class
    hangs: bool = False  # --hang-timeout
    timeout: float = 0  # of collectives; 0: the program's default
    environment: dict = dataclasses.field(default_factory=dict)
    options: tuple = ()
    program: tuple = ()  # in place of the job's


def variants(kind, has_torch):
    """The variants of a kind. In each, torch and worker_lib jobs alternate where both have it."""
    def both(wanted, torch, plain, **more):
        found = [Fault(kind, "worker_lib", name, wanted, **more) for name in plain]
        return found + ([Fault(kind, "torch", name, wanted, **more) for name in torch] if has_torch else [])

    if kind == "exit code":
        return both("crash", ["exit"], ["exit"] * 3)
    if kind == "signal":
        return both("crash", ["signal-11"], ["signal-11", "signal-6", "signal-8", "signal-4"])
    if kind == "exception":
        return both("crash", ["exception"], ["exception"] * 2)
    if kind == "killed for memory":
        return both("host_memory", ["oom"], ["oom"] * 3)
    if kind == "allocation fails":
        return both("host_memory", ["memory", "allocator"], ["bad-alloc"] * 4)
    if kind == "desync":
        found = both("desync", ["desync", "operation", "shape", "skip"], ["operation", "size", "skip"], hangs=True)
        found += [Fault(kind, "worker_lib", name, "desync") for name in ("operation", "size")]
        if has_torch:
            detail = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
            found += [Fault(kind, "torch", name, "desync", environment=detail, timeout=20) for name in ("desync", "shape")]
            found += [Fault(kind, "torch", name, "desync", timeout=6) for name in ("desync", "operation", "skip")]
        return found
    if kind == "missing rank":
        found = both("missing_rank", ["sleep", "lock", "stop"], ["sleep", "lock", "stop"], hangs=True)
        found += [Fault(kind, "worker_lib", name, "missing_rank", timeout=4) for name in ("sleep", "spin", "stop")]
        if has_torch:
            found += [Fault(kind, "torch", "sleep", "missing_rank", timeout=6)]
        return found
    if kind == "data loader":
        if not has_torch:
            return []
        return [Fault(kind, "torch", "loader", "data_loader"), Fault(kind, "torch", "loader-stall", "data_loader", hangs=True),
                Fault(kind, "torch", "loader-timeout", "data_loader")]
    if kind == "network":
        found = both("network", ["cut", "refused"], ["cut", "refused"])
        return found + [Fault(kind, "worker_lib", "node", "network")] * 2
    if kind == "user error":
        found = [Fault(kind, "worker_lib", name, "user_error", program=program) for name, program in (
            ("no program", ("/no/such/program",)), ("command not found", ("sh", "-c", "no-such-command")),
            ("wrong path", (sys.executable, "/no/such/train.py")), ("wrong option", (sys.executable, "-c", "import argparse; argparse.ArgumentParser().parse_args(['--lrr'])")),
            ("missing module", (sys.executable, "-c", "import no_such_module_of_mine")),
            ("syntax error", (sys.executable, "-c", "def")))]
        return found + both("user_error", ["import", "argument", "file"], [])
    raise SystemExit(f"unknown kind {kind}")


KINDS = ["exit code", "signal", "exception", "killed for memory", "allocation fails", "desync", "missing rank", "data loader", "network",
         "user error"]


RECORDS = json.loads(GPU_FAULTS.read_text())
GPU_KINDS = list(dict.fromkeys(record["kind"] for record in RECORDS["faults"]))


@dataclasses.dataclass
class Case:
    fault: Fault
    nodes: int
    per_node: int
    rank: int
    step: int

    @property
    def world(self):
        return self.nodes * self.per_node


@dataclasses.dataclass
class Result:
    case: Case
    found: str
    ranks: list
    is_class_right: bool
    are_ranks_right: bool
    seconds: float
    summary: str


class Cgroup:
    """A memory cgroup for one job, which kills what exceeds the limit; None if it cannot be made."""

    def __init__(self, path, procs):
        self.path, self.procs = path, procs

    @staticmethod
    def make(limit_bytes):
        for base, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            path = f"{base}/drun_faults_{os.getpid()}_{random.getrandbits(32):08x}"
            if not os.path.exists(f"{base}/{limit}") and limit != "memory.max":
                continue
            try:
                os.mkdir(path)
            except OSError:
                continue
            try:
                with open(f"{path}/{limit}", "w") as file:
                    file.write(str(limit_bytes))
                return Cgroup(path, f"{path}/cgroup.procs")
            except OSError:
                os.rmdir(path)
        return None

    def remove(self):
        for _ in range(50):
            try:
                return os.rmdir(self.path)
            except OSError:
                time.sleep(0.1)


def ranks_of(ranges):
    return [rank for first, last in ranges for rank in range(first, last + 1)]


def are_right(case, diagnosis):
    ranks, fault = ranks_of(diagnosis["ranks"]), case.fault
    if fault.name == "node":
        node = case.rank // case.per_node
        return diagnosis["exclude_node"] == node or (bool(ranks) and {rank // case.per_node for rank in ranks} == {node})
    if fault.wanted == "network":
        return not ranks or case.rank in ranks
    if fault.name == "no program":
        return not ranks  # drun finds that before it starts anything
    if fault.program or (fault.job == "replay" and RECORDS["faults"][case.step]["peers"] == "same"):
        return bool(ranks)  # all ranks have the fault, and any of them may be the first
    if case.world == 2 and fault.kind == "desync":
        return case.rank in ranks or not ranks
    return case.rank in ranks and len(ranks) - 1 <= (case.world - 1) / 2


def has_wanted_text(case, report):
    """Whether the cause, and the error of the faulty rank if it is reported, are those that the record names."""
    record = RECORDS["faults"][case.step] if case.fault.job == "replay" else {}
    if record.get("peers") == "same":
        case = dataclasses.replace(case, rank=report["root_cause"]["rank"])
    wanted = {name: record[name].replace("@RANK@", str(case.rank)) for name in ("error", "cause") if name in record}
    found = [failure.get("error") for failure in report["failures"] if failure["rank"] == case.rank]
    return (wanted.get("error", "") in ("", *found[:1]) or not found) and wanted.get("cause") in (None, report["diagnosis"]["summary"])


def seconds_of(text):
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=datetime.timezone.utc).timestamp()


def start(argv, **more):
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True, **more)


def run_until_end(argv, most_seconds, **more):
    return wait_for(start(argv, **more), most_seconds)


def wait_for(process, most_seconds):
    """Without Popen's timeout, which polls."""
    alarm = threading.Timer(most_seconds, lambda: os.killpg(process.pid, signal.SIGKILL))
    alarm.start()
    out = process.communicate()[0] if process.stdout else process.wait()
    alarm.cancel()
    return process.returncode, out


class Bench:
    def __init__(self, options):
        self.drun = os.path.abspath(options.drun)
        self.python = options.python
        self.torchrun = options.torchrun
        self.plain = str(pathlib.Path(self.drun).parent / "workers" / "faulty_rank")

    def program(self, fault, rank, step, timeout):
        words = [fault.name, str(rank), str(step)] + ([str(timeout)] if timeout else [])
        return [str(TORCH_JOB) if fault.job == "torch" else self.plain, *words]

    def words(self, case, place, seconds=None):
        fault = case.fault
        words = [self.drun, f"--local-nodes={case.nodes}", f"--nproc-per-node={case.per_node}", f"--report={place}/report.json",
                 f"--events={place}/events.jsonl", "--shutdown-timeout=3", "--output=lines"]
        if fault.hangs:
            words.append(f"--hang-timeout={seconds or HANG_TIMEOUT}")
        if fault.job == "torch":
            words.append("--preload=torch")
        if fault.name == "node":
            return [*words, f"--inject=kill:node={case.rank // case.per_node}@{0.2 + case.step / 10:.1f}s", self.plain, "forever", "0",
                    "1"]
        return [*words, *(fault.program or self.program(fault, case.rank, case.step, fault.timeout))]

    def environment(self, fault):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **fault.environment}
        if self.python:
            environment["PYTHON_EXEC"] = self.python
        return environment

    def run(self, case):
        fault, group, words_more = case.fault, None, []
        with tempfile.TemporaryDirectory() as place:
            words = self.words(case, place)
            if fault.name == "oom":
                group = Cgroup.make((1800 if fault.job == "torch" else 150) << 20)
                if group is None:
                    words = self.words(dataclasses.replace(case, fault=dataclasses.replace(fault, name="forever")), place)
                    words.insert(1, f"--inject=oom:rank={case.rank}@{0.5 + case.step / 10:.1f}s")
            join = (lambda: open(group.procs, "w").write(str(os.getpid()))) if group else None
            with open(f"{place}/output", "w") as output:
                run_until_end(words, MOST_SECONDS, cwd=place, env=self.environment(fault), stdout=output,
                              stderr=subprocess.STDOUT, preexec_fn=join)
            if group:
                group.remove()
            return self.result_in(case, place)

    def result_in(self, case, place):
        fault = case.fault
        try:
            ended = os.stat(f"{place}/report.json").st_mtime
            report = json.loads(pathlib.Path(f"{place}/report.json").read_text())
            diagnosis = report["diagnosis"]
        except (OSError, ValueError):
            tail = pathlib.Path(f"{place}/output").read_text(errors="replace")[-500:]
            return Result(case, "no report", [], False, False, 0, tail)
        began = [seconds_of(event["time"]) for event in events_in(place)
                 if event["event"] in ("worker_failed", "hang_suspected")]
        for event in events_in(place):
            if not began and event["event"] in ("fault_injected", "round_stopping"):
                began.append(seconds_of(event["time"]))
        if diagnosis is None:
            return Result(case, "none", [], False, False, 0, "")
        return Result(case, diagnosis["class"], ranks_of(diagnosis["ranks"]),
                      diagnosis["class"] == fault.wanted and has_wanted_text(case, report),
                      are_right(case, diagnosis), max(0, ended - min(began, default=ended)),
                      diagnosis["summary"] + " | " + " | ".join(diagnosis["evidence"]))

    def replay(self, case):
        """A case of gpu_cases(). Its step is the number of the fault, its fault's timeout the lead of the other ranks."""
        has_kernel_log = "kernel" in RECORDS["faults"][case.step]
        program = [str(REPLAY_JOB), str(GPU_FAULTS), str(case.step), str(case.rank), str(case.fault.timeout)]
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            port = held.getsockname()[1]
        with tempfile.TemporaryDirectory() as place:
            processes, output = [], open(f"{place}/output", "w")
            for node in range(case.nodes if has_kernel_log else 1):
                words = [self.drun, f"--nproc-per-node={case.per_node}", "--shutdown-timeout=3", "--output=lines",
                         f"--events={place}/events{node}.jsonl", *([f"--report={place}/report.json"] if node == 0 else [])]
                environment = self.environment(case.fault)
                if has_kernel_log:
                    log = environment["REPLAY_KERNEL_LOG"] = f"{place}/kmsg{node}"
                    pathlib.Path(log).write_text("6,1,1,-;an earlier record\n")
                    words += [f"--nnodes={case.nodes}", f"--node-rank={node}", "--master-addr=127.0.0.1",
                              f"--master-port={port}"]
                    words = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /dev/kmsg && exec "$@"', log, *words]
                else:
                    words.append(f"--local-nodes={case.nodes}")
                processes.append(start([*words, *program], cwd=place, env=environment, stdout=output, stderr=subprocess.STDOUT))
            for process in processes:
                wait_for(process, MOST_SECONDS)
            output.close()
            return self.result_in(case, place)

    def run_healthy(self, case, seconds):
        """Returns what was found; empty: no alarm, and the job succeeded."""
        with tempfile.TemporaryDirectory() as place:
            words = self.words(case, place, seconds=4)
            words[-1:] = words[-1:] + [str(seconds)]
            code, out = run_until_end(words, MOST_SECONDS, cwd=place, env=self.environment(case.fault), stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT)
            if code == 0 and not any(event["event"] == "hang_found" for event in events_in(place)):
                return ""
            return f"code {code}: {out.decode(errors='replace')[-400:]}"

    def torchrun_line(self, fault):
        """The first line of torchrun's own message about a fault, and the seconds that it took."""
        words = [self.torchrun, "--standalone", "--nproc-per-node=3", *self.program(fault, 1, 2, fault.timeout or 8)]
        began = time.time()
        _, out = run_until_end(words, 40, env=self.environment(fault), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = out.decode(errors="replace")
        lines = [re.sub(r"^[EWI]\d{4} .*?\.py:\d+\] ", "", line).strip() for line in text.splitlines()]
        telling = [re.sub(r" \(pid: \d+\)| of binary: .*", "", line) for line in lines if line.startswith("failed (exitcode")]
        return (telling or ["nothing, killed"])[0] + f" ({time.time() - began:.0f} s)"


def events_in(place):
    lines = [line for path in sorted(pathlib.Path(place).glob("events*.jsonl")) for line in path.read_text().splitlines()]
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            pass
    return found


def choose(kinds, count, has_torch, chance):
    cases = []
    for place, kind in enumerate(kinds):
        own = variants(kind, has_torch)
        share = count // len(kinds) + (place < count % len(kinds))
        for number in range(share if own else 0):
            fault = own[number % len(own)]
            nodes = chance.choice([2, 3])
            per_node = 1 if nodes == 3 or fault.job == "torch" else chance.choice([1, 2])
            if fault.job == "torch" and nodes == 2 and chance.random() < 0.25:
                per_node = 2
            world = nodes * per_node
            # The loss of the node that coordinates the job is the loss of the launcher's own node.
            rank = chance.randrange(per_node, world) if fault.name == "node" else chance.randrange(world)
            cases.append(Case(fault, nodes, per_node, rank, chance.randrange(1, 12)))
    chance.shuffle(cases)
    return cases


def gpu_cases(kinds, chance):
    cases = []
    for number, record in enumerate(RECORDS["faults"]):
        if record["kind"] not in kinds or ("kernel" in record and os.geteuid() != 0):
            continue
        has_order = record["end"] != "hang" and record["peers"] != "same"
        for lead in (0.15, 0, -0.15) if has_order else (0,):
            nodes = chance.choice([2, 3])
            per_node = 1 if nodes == 3 else chance.choice([1, 2])
            fault = Fault(record["kind"], "replay", f"{number}, lead {lead}", record["wanted"], timeout=lead)
            cases.append(Case(fault, nodes, per_node, chance.randrange(nodes * per_node), number))
    return cases


def table(results, torchrun_lines, is_markdown):
    rows = [("kind", "jobs", "right class", "right rank", "median s", "most s", "10 s")]
    for kind in [kind for kind in KINDS + GPU_KINDS if any(each.case.fault.kind == kind for each in results)] + ["all"]:
        own = [each for each in results if kind in ("all", each.case.fault.kind)]
        times = [each.seconds for each in own]
        right = sum(each.is_class_right for each in own)
        both = sum(each.is_class_right and each.are_ranks_right for each in own)
        soon = sum(each.is_class_right and each.are_ranks_right and each.seconds <= 10 for each in own)
        rows.append((kind, str(len(own)), f"{right}", f"{both}", f"{statistics.median(times):.1f}", f"{max(times):.1f}", f"{soon}"))
    if is_markdown:
        for place, row in enumerate(rows):
            if torchrun_lines:
                row = (*row, "torchrun" if place == 0 else torchrun_lines.get(row[0], ""))
            print("| " + " | ".join(row) + " |")
            if place == 0:
                print("|" + "---|" * len(row))
    else:
        for row in rows:
            print(f"{row[0]:<34}" + "".join(f"{cell:>13}" for cell in row[1:]))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drun")
    parser.add_argument("--python", help="a Python with torch; without it, PyTorch jobs are left out")
    parser.add_argument("--torchrun", help="also runs one sample of each kind under this torchrun")
    parser.add_argument("--count", type=int, default=200, help="faults")
    parser.add_argument("--healthy", type=int, default=100, help="jobs without a fault")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="at a time")
    parser.add_argument("--kinds", default="", help="only these, separated by commas")
    parser.add_argument("--gpu", action="store_true", help="only replays recorded faults of GPUs")
    parser.add_argument("--least", type=int, default=95, help="with --gpu: fail if a smaller share, in percent, is right")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    bench = Bench(options)
    chance = random.Random(options.seed)
    kinds = [kind for kind in KINDS if not options.kinds or kind in options.kinds.split(",")]
    cases = choose(kinds, options.count, bool(options.python), chance)
    if options.gpu:
        cases = gpu_cases([kind for kind in GPU_KINDS if not options.kinds or kind in options.kinds.split(",")], chance)
        options.healthy = 0
    began = time.time()
    print(f"seed {options.seed}, {len(cases)} faults, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, py-spy "
          + ("found" if any(os.access(f"{path}/py-spy", os.X_OK) for path in os.environ["PATH"].split(":")) else "not found"), flush=True)
    results = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for result in pool.map(bench.replay if options.gpu else bench.run, cases):
            results.append(result)
            case, fault = result.case, result.case.fault
            if not (result.is_class_right and result.are_ranks_right and result.seconds <= 10):
                print(f"NOT RIGHT: {fault.kind}, {fault.job} {fault.name}{' hang-timeout' if fault.hangs else ''}"
                      f"{' timeout' if fault.timeout and fault.job != 'replay' else ''}, {case.nodes} nodes of {case.per_node}, rank {case.rank}, step {case.step}: "
                      f"{result.found} {result.ranks} in {result.seconds:.1f} s: {result.summary}", flush=True)
    if results:
        lines = {}
        if options.torchrun:
            for kind in kinds:
                own = [fault for fault in variants(kind, bool(options.python)) if fault.job == "torch"]
                if own:
                    lines[kind] = bench.torchrun_line(own[0])
                    print(f"torchrun, {kind}: {lines[kind]}", flush=True)
        if options.gpu:
            print("replayed from recorded evidence, without a GPU:")
        table(results, lines, options.markdown)
        if options.gpu:
            right = sum(each.is_class_right and each.are_ranks_right for each in results)
            sys.exit(0 if 100 * right >= options.least * len(results) else f"fewer than {options.least} % are right")
        by_job = collections.Counter(result.case.fault.job for result in results)
        print(f"{by_job['torch']} PyTorch jobs, {by_job['worker_lib']} others; {time.time() - began:.0f} s, load {os.getloadavg()[0]:.1f}")
    alarms = []
    healthy = []
    for number in range(options.healthy):
        is_torch = bool(options.python) and number % 10 == 0
        name = "busy" if number % 2 and not is_torch else "quiet"
        nodes = chance.choice([2, 3])
        fault = Fault("healthy", "torch" if is_torch else "worker_lib", name, "", hangs=True)
        # A rank that works is not silent, but those that wait for it are.
        seconds = round(chance.uniform(1.5, 2.6), 1) if name == "quiet" else round(chance.uniform(4, 7), 1)
        healthy.append((Case(fault, nodes, 1, chance.randrange(nodes), chance.randrange(1, 12)), seconds))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for (case, seconds), found in zip(healthy, pool.map(lambda each: bench.run_healthy(*each), healthy)):
            if found:
                alarms.append(found)
                print(f"FALSE ALARM: {case.fault.job} {case.fault.name}, phases of {seconds} s: {found}", flush=True)
    if healthy:
        print(f"{len(healthy)} healthy jobs with silent phases: {len(alarms)} false alarms or failures")


if __name__ == "__main__":
    main()

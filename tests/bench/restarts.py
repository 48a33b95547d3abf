#!/usr/bin/env python3
"""Replays twenty failure histories under torchrun and drun, and counts the wasted restarts and seconds.

    tests/bench/restarts.py [--drun build/bin/drun] [--torchrun PATH] [--restarts 5] [--markdown] [NAME ...]

Each job has two workers, which do not need torch. A restart is wasted if its round fails again without more progress than all previous
rounds. The wasted seconds run from a failure without progress until the start of a round with progress or success, or until the job
ends. Time is scaled: a startup failure is one within 3 seconds (instead of 60). tests/unit/restart_policy_test.cc tests drun's decisions
separately.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

STARTUP_SECONDS = 3

# One worker's part of a round. State that is kept across rounds is in files in the current directory.
WORKER = r'''
import json, os, signal, subprocess, sys, time
name, began = sys.argv[1], float(sys.argv[2])
rank, number = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])

def note(what, **more):
    with open("rounds.jsonl", "a") as file:
        file.write(json.dumps({"round": number, "what": what, "rank": rank, "time": time.time(), **more}) + "\n")

def step_to(step, seconds):
    """Works until `step`, and saves a checkpoint there."""
    time.sleep(seconds)
    if rank != 0:
        return
    note("step", step=step)
    if "DRUN_PROGRESS_FILE" in os.environ:
        with open(os.environ["DRUN_PROGRESS_FILE"], "a") as file:
            file.write(f"{step}\n")

def fail(message, by_rank=0, code=1):
    """This rank ends with the message, the other one waits to be stopped."""
    if rank != by_rank:
        time.sleep(600)
    print(message, file=sys.stderr, flush=True)
    sys.exit(code)

def die(signal_number, by_rank=0):
    """A moment later than the step of the other rank."""
    if rank != by_rank:
        time.sleep(600)
    time.sleep(0.5)
    os.kill(os.getpid(), signal_number)
    time.sleep(600)

def run(*words):
    """The other rank waits, so that one failure is the first."""
    if rank != 0:
        time.sleep(600)
    sys.exit(subprocess.call([sys.executable, *words]))

def succeed():
    step_to(1_000_000, 0.2)

note("begin")
since = time.time() - began
if name == "missing module": run("-c", "import no_such_module_of_mine")
elif name == "wrong path": run("no_such_program.py")
elif name == "syntax error": run("-c", "def")
elif name == "unknown option": fail("usage: train.py\ntrain.py: error: unrecognized arguments: --lrr", code=2)
elif name == "missing data file": fail("FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'", by_rank=1)
elif name == "wrong shape at the first step": fail("RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x512 and 256x10)")
elif name == "damaged checkpoint": time.sleep(1.5); fail("RuntimeError: PytorchStreamReader failed reading zip archive")
elif name == "GPU memory exceeded at step 0": time.sleep(1); fail(f"torch.OutOfMemoryError: tried to allocate 9.2 GiB (pid {os.getpid()})", by_rank=1)
elif name == "host memory exceeded at step 0": time.sleep(0.5); fail("MemoryError")
elif name == "illegal instruction": die(signal.SIGILL)
elif name == "NaN at step 1000, from each checkpoint":
    step_to(900, 2 if number == 0 else 0)
    time.sleep(0.3)
    fail("FloatingPointError: the loss is NaN at step 1000")
elif name == "GPU memory exceeded, later each time, 8 times":
    if number < 8: step_to(100 * (number + 1), 0.3); fail("torch.OutOfMemoryError: tried to allocate 1.5 GiB")
    succeed()
elif name == "GPU memory exceeded at step 1000, once":
    if number == 0: step_to(1000, 4); fail("torch.OutOfMemoryError: tried to allocate 1.5 GiB")
    succeed()
elif name == "GPU of rank 1 fails twice":
    if number < 2: fail(f"CUDA error: uncorrectable ECC error encountered, address {number}", by_rank=1)
    succeed()
elif name == "network up after 2.5 s":
    if since < 2.5: fail("DistNetworkError: failed to connect to 10.0.0.7", by_rank=1)
    succeed()
elif name == "port free after 1.5 s":
    if since < 1.5: fail("OSError: [Errno 98] Address already in use")
    succeed()
elif name == "file system mounted after 3 s":
    if since < 3: fail("FileNotFoundError: [Errno 2] No such file or directory: '/mnt/data'")
    succeed()
elif name == "SIGTERM from outside, twice":
    if number < 2: step_to(10 * (number + 1), 0.3); die(signal.SIGTERM, by_rank=1)
    succeed()
elif name == "kill -9 from outside at the start, twice":
    if number < 2: die(signal.SIGKILL, by_rank=1)
    succeed()
elif name == "segmentation fault every 4 s, 8 times":
    if number < 8: step_to(100 * (number + 1), 4); die(signal.SIGSEGV, by_rank=1)
    succeed()
else: raise SystemExit(f"unknown history {name}")
'''
PERMANENT = ["missing module", "wrong path", "syntax error", "unknown option", "missing data file", "wrong shape at the first step",
             "damaged checkpoint", "GPU memory exceeded at step 0", "host memory exceeded at step 0", "illegal instruction",
             "NaN at step 1000, from each checkpoint"]
TEMPORARY = ["GPU memory exceeded, later each time, 8 times", "GPU memory exceeded at step 1000, once", "GPU of rank 1 fails twice",
             "network up after 2.5 s", "port free after 1.5 s", "file system mounted after 3 s", "SIGTERM from outside, twice",
             "kill -9 from outside at the start, twice", "segmentation fault every 4 s, 8 times"]


@dataclasses.dataclass
class Result:
    restarts: int
    wasted: int
    seconds: float
    code: int


def judge(rounds, ended, code):
    """`rounds`: lines of rounds.jsonl. `ended`: the time when the launcher returned."""
    begins, steps = {}, {}
    for line in rounds:
        if line["what"] == "begin":
            begins[line["round"]] = min(line["time"], begins.get(line["round"], line["time"]))
        else:
            steps[line["round"]] = max(line["step"], steps.get(line["round"], 0))
    numbers = sorted(begins)
    highest, wasted, seconds, fruitless_since = 0, 0, 0.0, None
    for place, number in enumerate(numbers):
        is_last = place == len(numbers) - 1
        is_further = steps.get(number, 0) > highest
        highest = max(highest, steps.get(number, 0))
        if is_further or (is_last and code == 0):
            if fruitless_since is not None:
                seconds += begins[number] - fruitless_since
            fruitless_since = None
            continue
        if place > 0:
            wasted += 1
        if fruitless_since is None:
            fruitless_since = begins[number]
    if fruitless_since is not None:
        seconds += ended - fruitless_since
    return Result(len(numbers) - 1, wasted, seconds, code)


def replay(words, name):
    with tempfile.TemporaryDirectory() as place:
        path = pathlib.Path(place)
        (path / "worker.py").write_text(WORKER)
        # torchrun takes seconds to start, so the worker's clock starts with the first round.
        (path / "start.py").write_text(
            "import os, runpy, sys, time\n"
            "try:\n    fd = os.open('began', os.O_WRONLY | os.O_CREAT | os.O_EXCL)\n    os.write(fd, b'%f\\n' % time.time())\n"
            "except FileExistsError:\n    pass\n"
            "while not os.path.getsize('began'): time.sleep(0.001)\n"
            "sys.argv = ['worker.py', sys.argv[1], open('began').read()]\n"
            "runpy.run_path('worker.py', run_name='__main__')\n")
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        code = subprocess.run([*words, "start.py", name], cwd=place, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300).returncode
        ended = time.time()
        rounds = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    return judge(rounds, ended, code)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drun", default="build/bin/drun")
    parser.add_argument("--torchrun", default="torchrun")
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    if unknown := set(options.names) - set(PERMANENT + TEMPORARY):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    launchers = {
        "torchrun": [options.torchrun, "--standalone", "--nproc-per-node=2", f"--max-restarts={options.restarts}"],
        "drun": [os.path.abspath(options.drun), "--standalone", "--nproc-per-node=2", f"--max-restarts={options.restarts}/progress",
                 f"--startup-time={STARTUP_SECONDS}", "--shutdown-timeout=5"],
    }
    print(f"load {os.getloadavg()[0]:.1f}, --max-restarts={options.restarts}; per launcher: restarts, of them wasted, seconds wasted, end")
    total = {launcher: [0, 0, 0.0] for launcher in launchers}
    for name in [name for name in PERMANENT + TEMPORARY if not options.names or name in options.names]:
        cells = []
        for launcher, words in launchers.items():
            result = replay(words, name)
            for place, value in enumerate((result.restarts, result.wasted, result.seconds)):
                total[launcher][place] += value
            end = "succeeds" if result.code == 0 else "fails"
            cells += [f"{result.restarts}", f"{result.wasted}", f"{result.seconds:.1f}", end]
        if options.markdown:
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
        else:
            print(f"{name:<50}" + "".join(f"{cell:>9}" for cell in cells), flush=True)
    for launcher, (restarts, wasted, seconds) in total.items():
        print(f"{launcher}: {restarts} restarts, {wasted} wasted, {seconds:.1f} s wasted")


if __name__ == "__main__":
    main()

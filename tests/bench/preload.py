#!/usr/bin/env python3
"""Measures how soon a Python job's ranks start, with a cold and with a preloaded interpreter, in turns.

    tests/bench/preload.py [--bin build/bin] [--python PYTHON, with torch] [--module torch] [--ranks 8] [--runs 5]
    tests/bench/preload.py --restarts 1000    # of a warm job: resources of the agent and the interpreter before and after

Measures, on one clock, the time until the last rank has written its first line, after drun's start and after the failure of a rank.
Also measures the memory of all ranks at that time (Pss: a page that N processes share counts 1/N for each).
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

PROGRAM = """
import os, sys, time
import {module}
round_number = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
os.write(3, b"%d %d %f\\n" % (round_number, os.getpid(), time.monotonic()))
if round_number == 0:
    if os.environ["RANK"] == "0":
        while not os.path.exists("fail"):
            time.sleep(0.002)
        os.write(3, b"fail %d %f\\n" % (os.getpid(), time.monotonic()))
        os.kill(os.getpid(), 9)
    time.sleep(600)
while not os.path.exists("end"):
    time.sleep(0.002)
"""
# Skips Python's finalization, which writes to most of torch's shared pages and takes longer than everything else.
RESTARTS = """
import os
import {module}
os.write(3, b"%s\\n" % os.environb[b"TORCHELASTIC_RESTART_COUNT"])
os._exit(int(os.environ["TORCHELASTIC_RESTART_COUNT"]) < {restarts})
"""


def pss_kb(pid):
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def held(pid):
    """Returns the number of descriptors, threads and children, and the resident kB, of a process."""
    status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {"descriptors": len(os.listdir(f"/proc/{pid}/fd")), "threads": int(status["Threads"]), "children": len(children),
            "resident_kB": int(status["VmRSS"].split()[0])}


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended by now
        return b""


def lines_from(file):
    for line in file:
        yield line.split()


def start(options, words, place, program, environment):
    reading, writing = os.pipe()
    (place / "program.py").write_text(program)
    for name in ("fail", "end"):
        (place / name).unlink(missing_ok=True)

    def to_three():
        os.dup2(writing, 3)

    began = time.monotonic()
    job = subprocess.Popen([options.drun, "--standalone", *words, "program.py"], cwd=place, env=environment, pass_fds=(3,) if writing == 3 else (),
                           close_fds=False, preexec_fn=None if writing == 3 else to_three, stdout=subprocess.DEVNULL, stderr=(place / "log").open("w"))
    os.close(writing)
    return job, began, os.fdopen(reading)


def one(options, place, is_warm, environment):
    words = [f"--nproc-per-node={options.ranks}", "--max-restarts=1", "--restart-backoff=0", "--shutdown-timeout=0"]
    if is_warm:
        words.append(f"--preload={options.module}")
    job, began, file = start(options, words, place, PROGRAM.format(module=options.module), environment)
    first, second, pids, failed = [], [], [], 0.0
    for fields in lines_from(file):
        if fields[0] == "fail":
            failed = float(fields[2])
            continue
        (first if fields[0] == "0" else second).append(float(fields[2]))
        if fields[0] == "0":
            pids.append(int(fields[1]))
        if fields[0] == "0" and len(first) == options.ranks:
            memory = sum(pss_kb(pid) for pid in pids)
            (place / "fail").touch()
        if len(second) == options.ranks:
            (place / "end").touch()
    code = job.wait()
    log = (place / "log").read_text()
    if code != 0 or len(second) != options.ranks or ("preloaded" in log) != is_warm:
        sys.exit(f"the job failed: {log}")
    return {"start": max(first) - began, "restart": max(second) - failed, "memory": memory / 1024}


def restarts(options, place, environment):
    words = [f"--nproc-per-node={options.ranks}", f"--max-restarts={options.restarts}", "--restart-backoff=0", "--max-same-failures=0",
             f"--preload={options.module}"]
    job, began, file = start(options, words, place, RESTARTS.format(module=options.module, restarts=options.restarts), environment)
    agent = None
    seen = set()
    for fields in lines_from(file):
        number = int(fields[0])
        if number in seen:
            continue
        seen.add(number)
        if agent is None:
            agent = int(pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()[0])
        if number in (10, 100, options.restarts // 2, options.restarts - 1):
            interpreters = [pid for pid in pathlib.Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
                            if b"(drun preload)" in command_of(pid)]
            print(f"restart {number}: agent {held(agent)}, interpreter {[held(pid) for pid in interpreters]}")
    code = job.wait()
    log = (place / "log").read_text()
    print(f"{len(seen) - 1} restarts in {time.monotonic() - began:.1f} s, exit code {code}, imports {log.count('preloaded ')}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--module", default="torch")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--restarts", type=int, default=0)
    options = parser.parse_args()
    options.drun = os.path.abspath(f"{options.bin}/drun")
    environment = {**os.environ, "PYTHON_EXEC": options.python, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        if options.restarts:
            return restarts(options, place, environment)
        found = {True: [], False: []}
        for _ in range(options.runs):
            for is_warm in (False, True):
                found[is_warm].append(one(options, place, is_warm, environment))
        units = {"start": "s", "restart": "s", "memory": "MB"}
        for what, unit in units.items():
            cold, warm = ([each[what] for each in found[is_warm]] for is_warm in (False, True))
            middle = statistics.median(cold), statistics.median(warm)
            print(f"{what}: cold {middle[0]:.2f} {unit} ({min(cold):.2f} to {max(cold):.2f}), warm {middle[1]:.2f} {unit} "
                  f"({min(warm):.2f} to {max(warm):.2f}), {middle[1] / middle[0]:.3f} times cold")


if __name__ == "__main__":
    main()

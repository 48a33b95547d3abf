#!/usr/bin/env python3
"""Preempts a job repeatedly and counts the lost steps.

    tests/bench/preemptions.py [--drun build/bin/drun] [--runs 100] [--nodes 3] [--ranks 2, per node] [--limit 6] [--python PYTHON]

Each run gets a time limit and a signal before it, like a batch job, and continues from the previous run's checkpoint. Every rank counts
steps. Rank 0 saves the count on the signal, which takes a different time in each run. A run is preempted if drun exits with 124 and
its report has the outcome "preempted". A step is lost if a rank had finished it before the signal and the next run repeats it, except
for the step in progress. In every tenth run the workers ignore the signal, so drun stops them at the limit. They then save a
checkpoint every tenth step, and steps in a checkpoint must not be lost.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

WORKER = r'''
import json, os, signal, sys, time
ignores, save_seconds = sys.argv[1] == "ignores", float(sys.argv[2])
rank = int(os.environ["RANK"])
has_signal = False

def on_signal(number, frame):
    global has_signal
    has_signal = True

signal.signal(signal.SIGUSR1, on_signal)
if ignores:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

def save(step):
    time.sleep(save_seconds)
    with open("checkpoint.new", "w") as file:
        file.write(str(step))
        file.flush()
        os.fsync(file.fileno())
    os.rename("checkpoint.new", "checkpoint")
    note("saved", step)

def note(what, step):
    with open(f"notes.{rank}", "a") as file:
        file.write(json.dumps({"what": what, "step": step, "time": time.time()}) + "\n")

step = int(open("checkpoint").read()) if os.path.exists("checkpoint") else 0
note("begins", step)
while not has_signal:
    time.sleep(0.02)
    step += 1
    if ignores and rank == 0 and step % 10 == 0:
        save(step)
note("signal", step)
if rank == 0:
    save(step)
sys.exit(0)
'''


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drun", default="build/bin/drun")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--limit", type=float, default=6)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    chance = random.Random(options.seed)
    print(f"load {os.getloadavg()[0]:.1f}, seed {options.seed}")
    preempted, lost, wrong, stopped, early = 0, 0, [], 0, []
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        (place / "worker.py").write_text(WORKER)
        saved = 0
        for number in range(options.runs):
            ignores = number % 10 == 9
            for each in place.glob("notes.*"):
                each.unlink()
            began = time.time()
            code = subprocess.run(
                [os.path.abspath(options.drun), f"--local-nodes={options.nodes}", f"--nproc-per-node={options.ranks}",
                 f"--time-limit={options.limit}", f"--signal-before={options.limit - 1.5}:SIGUSR1", "--shutdown-timeout=0.5", "--report=report.json",
                 options.python, "worker.py", "ignores" if ignores else "saves", "0" if ignores else f"{chance.uniform(0, 0.8):.2f}"],
                cwd=place, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=(place / "log").open("w")).returncode
            took = time.time() - began
            outcome = json.loads((place / "report.json").read_text())["outcome"]
            notes = {int(path.suffix[1:]): [json.loads(line) for line in path.read_text().splitlines()] for path in place.glob("notes.*")}
            begins = {rank: lines[0]["step"] for rank, lines in notes.items()}
            checkpoint = int((place / "checkpoint").read_text()) if (place / "checkpoint").exists() else 0
            signaled = [line["step"] for line in notes.get(0, []) if line["what"] == "signal"]
            last_saved = [line["step"] for line in notes.get(0, []) if line["what"] == "saved"]
            # A rank that starts late may find a newer checkpoint of rank 0.
            is_right = (code == 124 and outcome == "preempted" and len(notes) == options.nodes * options.ranks and begins[0] == saved
                        and all(step >= saved for step in begins.values()))
            preempted += is_right
            stopped += ignores
            lost += max(0, saved - min(begins.values(), default=saved))
            if signaled:
                lost += max(0, signaled[0] - checkpoint)
            if last_saved and last_saved[-1] > checkpoint:
                lost += last_saved[-1] - checkpoint
            if not is_right:
                wrong.append((number, code, outcome, begins, saved, len(notes)))
                print(f"run {number}: exit code {code}, outcome {outcome}, ranks begin at {begins} after {saved}, {len(notes)} ranks\n"
                      + (place / "log").read_text()[-2000:], flush=True)
            early.append(options.limit - took)
            saved = checkpoint
    print(f"{options.runs} runs of {options.nodes} nodes with {options.ranks} ranks each, {saved} steps: {preempted} preempted, {lost} steps lost; "
          f"in {stopped} the workers ignored the signals; drun ended {statistics.median(early):.2f} s before the limit "
          f"({min(early):.2f} to {max(early):.2f})")
    return bool(wrong or lost)


if __name__ == "__main__":
    sys.exit(main())

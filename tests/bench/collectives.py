#!/usr/bin/env python3
"""all_reduce of f32 by worker_lib's backends and by MPI, in turns; medians of rounds, and ratios to drun's shm.

    tests/bench/collectives.py [BUILD_DIR, build] [RANKS, 2] [ROUNDS, 3]

MPI is measured when mpicc and mpirun are there (packages openmpi-bin and libopenmpi-dev).
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = sys.argv[1] if len(sys.argv) > 1 else "build"
RANKS = sys.argv[2] if len(sys.argv) > 2 else "2"
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
SIZES = [4 ** i for i in range(1, 14)]  # 4 B to 64 MB
SECONDS = "0.1"


def drun_perf(*options):
    times = {}
    for bytes in SIZES:
        out = subprocess.run(
            [f"{BUILD}/bin/drun", "--standalone", f"--nproc_per_node={RANKS}", f"{BUILD}/bin/drun-perf", "all_reduce",
             "--json", "--seconds", SECONDS, "--bytes", str(bytes), *options],
            check=True, capture_output=True, text=True).stdout
        measured = json.loads(out)
        times[measured["bytes"]] = measured["time_us"]
    return times


def mpi(program):
    out = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", RANKS, program,
                          str(SIZES[0]), str(SIZES[-1]), SECONDS], check=True, capture_output=True, text=True).stdout
    return {int(line.split()[0]): float(line.split()[1]) for line in out.splitlines()}


def main():
    contenders = {
        "shm": lambda: drun_perf("--backend", "shm"),
        "shm, alloc_shared": lambda: drun_perf("--backend", "shm", "--shared"),
        "gloo": lambda: drun_perf("--backend", "gloo"),
    }
    with tempfile.TemporaryDirectory() as directory:
        program = os.path.join(directory, "mpi_all_reduce")
        if shutil.which("mpicc") and shutil.which("mpirun"):
            subprocess.run(["mpicc", "-O2", "-o", program, os.path.join(HERE, "mpi_all_reduce.c")], check=True)
            contenders["MPI"] = lambda: mpi(program)
        rounds = {name: [] for name in contenders}
        for _ in range(ROUNDS):
            for name, measure in contenders.items():
                rounds[name].append(measure())
    print(f"all_reduce, f32 sum, {RANKS} ranks: microseconds, median of {ROUNDS} rounds (times drun's shm)")
    print(f"{'bytes':>10}" + "".join(f"{name:>26}" for name in contenders))
    for bytes in SIZES:
        medians = {name: statistics.median(each[bytes] for each in rounds[name]) for name in contenders}
        print(f"{bytes:>10}" + "".join(f"{time:16.2f} ({time / medians['shm']:6.2f})" for time in medians.values()))


main()

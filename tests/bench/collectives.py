#!/usr/bin/env python3
"""Measures all_reduce and messages of f32 with worker_lib's backends, bare Gloo and MPI. Prints medians and ratios to drun's shm.

    tests/bench/collectives.py [BUILD_DIR, build] [RANKS, 2] [ROUNDS, 3]

The programs take turns in every round. Bare Gloo runs over loopback with its default algorithm, a ring, and with its older
halving-doubling. MPI is measured if mpicc and mpirun are installed (packages openmpi-bin and libopenmpi-dev). On a machine with
NVIDIA GPUs, worker_lib's nccl and bare NCCL are measured, too, with one rank per GPU. Bare NCCL uses blocking communicators, like
nccl-tests, and nonblocking ones, like worker_lib.
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


def under_drun(ranks, *words):
    command = [f"{BUILD}/bin/drun", "--standalone", f"--nproc_per_node={ranks}", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def times_in(out):
    return {int(line.split()[0]): float(line.split()[1]) for line in out.splitlines()}


def drun_perf(*options, operation="all_reduce", ranks=RANKS):
    times = {}
    for bytes in SIZES:
        measured = json.loads(under_drun(ranks, f"{BUILD}/bin/drun-perf", operation, "--json", "--seconds", SECONDS,
                                         "--bytes", str(bytes), *options))
        times[measured["bytes"]] = measured["time_us"]
    return times


def mpi(program, operation):
    out = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", RANKS, program, operation,
                          str(SIZES[0]), str(SIZES[-1]), SECONDS], check=True, capture_output=True, text=True).stdout
    return times_in(out)


def bare_gloo(algorithm):
    with tempfile.TemporaryDirectory() as store:
        return times_in(under_drun(RANKS, f"{BUILD}/bin/bench/gloo_all_reduce", algorithm, store, "lo",
                                   str(SIZES[0]), str(SIZES[-1]), SECONDS))


def rounds_of(contenders):
    """Runs {name: function} in turns. Returns {name: [measurement of each round]}."""
    rounds = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, measure in contenders.items():
            rounds[name].append(measure())
    return rounds


def medians_of(rounds, bytes):
    return {name: statistics.median(each[bytes] for each in times) for name, times in rounds.items()}


def gpus():
    """Returns the benchmark of bare NCCL and the number of its GPUs. If there is none, prints the reason."""
    bare = f"{BUILD}/bin/bench/nccl_all_reduce"
    asked = subprocess.run([bare], capture_output=True, text=True)
    if asked.returncode != 0:
        print(f"\nnccl: skipped: {asked.stderr.strip()}")
    return bare, int(asked.stdout) if asked.returncode == 0 else 0


def nccl():
    bare, count = gpus()
    if count == 0:
        return
    ranks = min(int(RANKS), count)
    contenders = {"nccl": lambda: drun_perf("--device", "cuda", ranks=ranks)}
    for how in ("blocking", "nonblocking"):
        contenders[f"bare, {how}"] = lambda how=how: times_in(
            under_drun(ranks, bare, how, str(SIZES[0]), str(SIZES[-1]), SECONDS))
    rounds = rounds_of(contenders)
    print(f"\nall_reduce, f32 sum, {ranks} ranks, one GPU per rank: microseconds, median of {ROUNDS} rounds (drun's nccl over it)")
    print(f"{'bytes':>10}" + "".join(f"{name:>26}" for name in contenders))
    for bytes in SIZES:
        medians = medians_of(rounds, bytes)
        print(f"{bytes:>10}" + "".join(f"{time:16.2f} ({medians['nccl'] / time:6.3f})" for time in medians.values()))


def print_table(title, rounds):
    print(f"{title}, f32, {RANKS} ranks: microseconds, median of {ROUNDS} rounds (times drun's shm)")
    print(f"{'bytes':>10}" + "".join(f"{name:>26}" for name in rounds))
    for bytes in SIZES:
        medians = medians_of(rounds, bytes)
        print(f"{bytes:>10}" + "".join(f"{time:16.2f} ({time / medians['shm']:6.2f})" for time in medians.values()))


def main():
    sums = {
        "shm": lambda: drun_perf("--backend", "shm"),
        "shm, alloc_shared": lambda: drun_perf("--backend", "shm", "--shared"),
        "gloo": lambda: drun_perf("--backend", "gloo"),
    }
    messages = {
        "shm": lambda: drun_perf("--backend", "shm", operation="send_recv"),
        "gloo": lambda: drun_perf("--backend", "gloo", operation="send_recv"),
    }
    if not os.path.exists(f"{BUILD}/bin/bench/gloo_all_reduce"):
        subprocess.run(["cmake", "--build", BUILD, "--target", "bench_gloo_all_reduce"], check=True, stdout=subprocess.DEVNULL)
    for algorithm in ("ring", "halving"):
        sums[f"bare Gloo, {algorithm}"] = lambda algorithm=algorithm: bare_gloo(algorithm)
    with tempfile.TemporaryDirectory() as directory:
        program = os.path.join(directory, "mpi_perf")
        if shutil.which("mpicc") and shutil.which("mpirun"):
            subprocess.run(["mpicc", "-O2", "-o", program, os.path.join(HERE, "mpi_perf.c")], check=True)
            sums["MPI"] = lambda: mpi(program, "all_reduce")
            messages["MPI"] = lambda: mpi(program, "send_recv")
        print_table("all_reduce, sum", rounds_of(sums))
        print_table("\nsend_recv, to the next rank and from the one before", rounds_of(messages))
    nccl()


main()

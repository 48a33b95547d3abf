#!/usr/bin/env python3
"""Measures all_reduce of f32 over two hosts, which are network namespaces (hosts.py). Prints medians and ratios. Needs root.

    tests/bench/gloo_hosts.py [--build BUILD_DIR, build] [--rounds N, 5] [--seconds S, 0.2] [--quick] [bare] [nodes]

bare:  2 hosts x 1 rank: worker_lib's gloo backend, and Gloo's own all_reduce without worker_lib, with each of its algorithms.
nodes: 2 hosts x 2 ranks: shm within a host and Gloo between them ("shm+gloo"), and Gloo alone.
--quick: few sizes and little time, to check that it works.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

from hosts import Hosts, can_have_hosts

ALGORITHMS = ("ring", "bcube", "halving")


class Job:
    """Runs a program on both hosts under drun."""

    def __init__(self, hosts, build):
        self.hosts = hosts
        self.bin = os.path.abspath(f"{build}/bin")
        self.count = 0

    def run(self, ranks_per_host, *words):
        """Returns rank 0's output."""
        self.count += 1
        agents = []
        for rank, (number, _, _) in enumerate(self.hosts.nodes):
            command = self.hosts.on(
                number, f"{self.bin}/drun", f"--nnodes={len(self.hosts.nodes)}", f"--node_rank={rank}",
                f"--nproc_per_node={ranks_per_host}", "--master_addr=10.79.0.1", f"--master_port={20000 + self.count}", *words)
            agents.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        ends = [agent.communicate() for agent in agents]
        if any(agent.returncode != 0 for agent in agents):
            sys.exit("".join(end[1] for end in ends) + f"failed: {' '.join(words)}")
        return ends[0][0]

    def drun_perf(self, ranks_per_host, backend, size, seconds):
        measured = json.loads(self.run(ranks_per_host, f"{self.bin}/drun-perf", "all_reduce", "--backend", backend, "--json",
                                       "--bytes", str(size), "--seconds", str(seconds)))
        if measured["backend"] != backend:
            sys.exit(f"measured {measured['backend']} instead of {backend}: are the hosts taken for one node?")
        return measured["time_us"]

    def bare_gloo(self, ranks_per_host, algorithm, size, seconds):
        store = f"{self.hosts.place}/store{self.count}"
        os.mkdir(store)
        line = self.run(ranks_per_host, f"{self.bin}/bench/gloo_all_reduce", algorithm, store, "eth0", str(size), str(size), str(seconds))
        return float(line.split()[1])


def in_turns(contenders, rounds):
    """Runs {name: function} in turns. Returns {name: median}."""
    times = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, action in contenders.items():
            times[name].append(action())
    return {name: statistics.median(each) for name, each in times.items()}


def table(title, names, ratios, sizes, measure):
    """Prints a line for each size as soon as it is measured. ratios: {name: medians -> number}."""
    print(f"\n{title}\n\n| bytes | " + " | ".join([*names, *ratios]) + " |\n|" + "---|" * (1 + len(names) + len(ratios)), flush=True)
    for size in sizes:
        medians = measure(size)
        cells = [f"{medians[name]:.2f}" for name in names] + [f"{ratio(medians):.3f}" for ratio in ratios.values()]
        print(f"| {size} | " + " | ".join(cells) + " |", flush=True)


def bare(job, options):
    def measure(size):
        contenders = {"drun gloo": lambda: job.drun_perf(1, "gloo", size, options.seconds)}
        for algorithm in ALGORITHMS:
            contenders[algorithm] = lambda algorithm=algorithm: job.bare_gloo(1, algorithm, size, options.seconds)
        return in_turns(contenders, options.rounds)
    ratios = {"drun / ring": lambda medians: medians["drun gloo"] / medians["ring"],
              "drun / best": lambda medians: medians["drun gloo"] / min(medians[name] for name in ALGORITHMS)}
    table(f"all_reduce of f32, 2 hosts x 1 rank, microseconds, medians of {options.rounds} rounds: worker_lib's gloo and bare Gloo",
          ("drun gloo", *ALGORITHMS), ratios, options.sizes, measure)


def nodes(job, options):
    def measure(size):
        return in_turns({name: lambda name=name: job.drun_perf(2, name, size, options.seconds) for name in ("shm+gloo", "gloo")},
                        options.rounds)
    table(f"all_reduce of f32, 2 hosts x 2 ranks, microseconds, medians of {options.rounds} rounds: by node and flat",
          ("shm+gloo", "gloo"), {"gloo / shm+gloo": lambda medians: medians["gloo"] / medians["shm+gloo"]}, options.sizes, measure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="bare|nodes", help="default: both")
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if unknown := [each for each in options.what if each not in ("bare", "nodes")]:
        parser.error(f"there is no {unknown[0]}: bare or nodes")
    options.sizes = [4 ** i for i in range(1, 14)]  # 4 B to 64 MB
    if options.quick:
        options.sizes, options.rounds, options.seconds = [4, 65536, 1 << 20], 1, 0.01
    if not can_have_hosts():
        print("skipped: needs root, ip, unshare and mount")
        return
    what = options.what or ["bare", "nodes"]
    if "bare" in what:
        subprocess.run(["cmake", "--build", options.build, "--target", "bench_gloo_all_reduce"], check=True, stdout=subprocess.DEVNULL)
    with Hosts(2) as hosts:
        job = Job(hosts, options.build)
        if "bare" in what:
            bare(job, options)
        if "nodes" in what:
            nodes(job, options)


main()

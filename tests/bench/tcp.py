#!/usr/bin/env python3
"""Measures worker_lib's tcp beside Open MPI's TCP and Gloo, in turns. Prints a Markdown table of medians for each case.

    tests/bench/tcp.py [--build BUILD_DIR, build] [--rounds N, 3] [--seconds S, 0.1] [--bytes MIN:MAX, 4:67108864] [--operation NAME]
                       [--delay MS] [--loss PERCENT] [loopback] [apart] [four] [nodes]

loopback: 2 ranks of this machine, over 127.0.0.1; drun's are bound to cores (--bind-to=core), as Open MPI's are by default.
apart:    2 hosts x 1 rank, which are network namespaces (hosts.py).
four:     4 hosts x 1 rank.
nodes:    2 hosts x 2 ranks: shared memory within a host for drun and Open MPI.
--operation: all_reduce (default) or send_recv.
--delay, --loss: of each packet between two hosts (slow_link.c, which works without netem).

All cases except loopback need root. Open MPI (openmpi-bin, libopenmpi-dev) uses `--mca pml ob1` and the BTLs tcp and self, with vader
for `nodes`.
"""
import argparse
import contextlib
import json
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

from hosts import Hosts, can_have_hosts

HERE = os.path.dirname(os.path.abspath(__file__))
# Case -> (hosts, ranks on each, drun's backend, the other backend, Open MPI's transports)
CASES = {
    "loopback": (0, 2, "tcp", "gloo", "tcp,self"),
    "apart": (2, 1, "tcp", "gloo", "tcp,self"),
    "four": (4, 1, "tcp", "gloo", "tcp,self"),
    "nodes": (2, 2, "shm+tcp", "shm+gloo", "vader,tcp,self"),
}


class Bench:
    """Runs the programs of one case. `hosts`: None on loopback."""

    def __init__(self, options, case, hosts, place):
        self.options = options
        self.count, self.ranks, self.backend, self.other, self.transports = CASES[case]
        self.hosts = hosts
        self.place = place
        self.bin = os.path.abspath(f"{options.build}/bin")
        self.ports = 20000

    def run(self, commands):
        """Returns the output of the first command."""
        running = [subprocess.Popen(["timeout", "120", *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                   for command in commands]
        try:
            ends = [each.communicate() for each in running]
        finally:
            for each in running:
                if each.poll() is None:
                    each.terminate()
        if any(each.returncode != 0 for each in running):
            sys.exit("".join(end[1] for end in ends) + f"failed: {shlex.join(commands[0])}")
        return ends[0][0]

    def drun(self, backend):
        perf = [f"{self.bin}/drun-perf", self.options.operation, "--backend", backend, "--json", "--seconds", str(self.options.seconds),
                "--bytes", f"{self.options.least}:{self.options.most}"]
        if self.hosts is None:
            out = self.run([[f"{self.bin}/drun", "--standalone", "--bind-to=core", f"--nproc_per_node={self.ranks}", *perf]])
        else:
            self.ports += 1
            out = self.run([self.hosts.on(number, f"{self.bin}/drun", f"--nnodes={self.count}", f"--node_rank={number - 1}",
                                          f"--nproc_per_node={self.ranks}", "--master_addr=10.79.0.1", f"--master_port={self.ports}", *perf)
                            for number, _, _ in self.hosts.nodes])
        measured = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        if wrong := [each["backend"] for each in measured if each["backend"] != backend]:
            sys.exit(f"measured {wrong[0]} instead of {backend}")
        return {each["bytes"]: each["time_us"] for each in measured}

    def open_mpi(self):
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "pml", "ob1", "--mca", "btl", self.transports]
        if self.hosts is not None:
            # Each host would bind its first rank to the first core of the machine.
            command += ["--bind-to", "none", "--mca", "plm_rsh_agent", self._login(), "--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0",
                        "--host", ",".join(f"{name}:{self.ranks}" for _, name, _ in self.hosts.nodes)]
        command += ["-n", str(max(self.count, 1) * self.ranks), f"{self.place}/mpi_perf", self.options.operation, str(self.options.least),
                    str(self.options.most), str(self.options.seconds)]
        out = self.run([command if self.hosts is None else self.hosts.on(1, *command)])
        return {int(line.split()[0]): float(line.split()[1]) for line in out.splitlines()}

    def _login(self):
        """Returns a program that runs a command on a host, as ssh does."""
        path = f"{self.place}/login"
        with open(path, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\nhost=$1\nshift\ncase $host in\n")
            for number, name, _ in self.hosts.nodes:
                file.write(f"{name}) exec {shlex.join(self.hosts.on(number, 'sh', '-c'))} \"$*\";;\n")
            file.write("esac\n")
        os.chmod(path, 0o755)
        return path


class SlowLink:
    """Replaces the network between two hosts by a slow one (slow_link.c)."""

    def __init__(self, hosts, options, place):
        names = [f"{hosts.name}{number}" for number, _, _ in hosts.nodes]
        for name in names:
            subprocess.run(["ip", "-n", name, "link", "del", "eth0"], check=True)
        self.process = subprocess.Popen([f"{place}/slow_link", *names, str(options.delay), str(options.loss)],
                                        stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "connected\n":
            sys.exit("slow_link has failed")
        for name, (_, _, address) in zip(names, hosts.nodes):
            subprocess.run(["ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0"], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "eth0", "up"], check=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def measure(options, case, hosts, place):
    bench = Bench(options, case, hosts, place)
    contenders = {bench.backend: lambda: bench.drun(bench.backend), bench.other: lambda: bench.drun(bench.other)}
    if os.path.exists(f"{place}/mpi_perf"):
        contenders["Open MPI"] = bench.open_mpi
    rounds = {name: [] for name in contenders}
    for _ in range(options.rounds):
        for name, action in contenders.items():
            rounds[name].append(action())
    ratios = [name for name in contenders if name != bench.backend]
    print(f"\n`{case}`: {options.operation} of f32, microseconds, medians of {options.rounds} rounds"
          + (f", {options.delay} ms delay, {options.loss} % loss" if options.delay or options.loss else ""))
    print("\n| bytes | " + " | ".join([*contenders, *(f"{name} / {bench.backend}" for name in ratios)]) + " |")
    print("|---" * (1 + len(contenders) + len(ratios)) + "|")
    size = options.least
    while size <= options.most:
        medians = {name: statistics.median(times[size] for times in rounds[name]) for name in contenders}
        cells = [f"{medians[name]:.2f}" for name in contenders] + [f"{medians[name] / medians[bench.backend]:.2f}" for name in ratios]
        print(f"| {size} | " + " | ".join(cells) + " |", flush=True)
        size *= 4


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="|".join(CASES), help="default: all")
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--bytes", default="4:67108864")
    parser.add_argument("--operation", default="all_reduce", choices=("all_reduce", "send_recv"))
    parser.add_argument("--delay", type=float, default=0)
    parser.add_argument("--loss", type=float, default=0)
    options = parser.parse_args()
    if unknown := [each for each in options.cases if each not in CASES]:
        parser.error(f"there is no {unknown[0]}: {', '.join(CASES)}")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that every program is ended, too
    options.least, options.most = (int(each) for each in options.bytes.split(":"))
    with tempfile.TemporaryDirectory(prefix="drun-bench-") as place:
        if shutil.which("mpicc") and shutil.which("mpirun"):
            subprocess.run(["mpicc", "-O2", "-o", f"{place}/mpi_perf", os.path.join(HERE, "mpi_perf.c")], check=True)
        if options.delay > 0 or options.loss > 0:
            if any(CASES[case][0] != 2 for case in options.cases or CASES):
                parser.error("--delay and --loss are for two hosts: apart, nodes")
            subprocess.run(["cc", "-O2", "-o", f"{place}/slow_link", os.path.join(HERE, "slow_link.c")], check=True)
        for case in options.cases or CASES:
            if CASES[case][0] == 0:
                measure(options, case, None, place)
            elif not can_have_hosts():
                print(f"\n{case}: skipped: needs root, ip, unshare and mount")
            else:
                with Hosts(CASES[case][0]) as hosts:
                    is_slow = options.delay > 0 or options.loss > 0
                    with SlowLink(hosts, options, place) if is_slow else contextlib.nullcontext():
                        measure(options, case, hosts, place)


main()

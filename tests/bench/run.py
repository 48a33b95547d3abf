#!/usr/bin/env python3
"""Measures drun and its peers, in turns within one run, and prints medians and ratios.

usage: tests/bench/run.py [--bin build/bin] [--rounds N] [NAME ...]      (no NAME: all of them)

Names: launch help memory short latency output gather agents store orphans hosts. docs/internals/benchmarks.md describes them and has results.
"""
import argparse
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time



def timed(command, **keywords):
    # Does not use subprocess's timeout, which polls up to every 50 ms.
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **keywords)
    code = process.wait()
    took = time.perf_counter() - begin
    if code != 0:
        sys.exit(f"{' '.join(command)}: exit code {code}")
    return took


def in_turns(contenders, rounds):
    """Runs {name: command} and returns {name: [seconds]}. Every round runs each command once, so that noise affects all of them."""
    times = {name: [] for name in contenders}
    for command in contenders.values():
        timed(command)
    for _ in range(rounds):
        for name, command in contenders.items():
            times[name].append(timed(command))
    return times


def show(title, times, base):
    print(f"{title}")
    floor = statistics.median(times[base])
    for name, seconds in times.items():
        middle = statistics.median(seconds)
        print(f"  {name:<28} {middle * 1000:9.1f} ms   x{middle / floor:.2f}   (min {min(seconds) * 1000:.1f})")


def hydra():
    for name in ("mpiexec.hydra", "mpiexec.mpich"):
        if shutil.which(name):
            return name
    print("  (mpiexec.hydra is not installed: package mpich)")
    return None


def bench_launch(drun, bins, rounds):
    for count in (1, 64, 256):
        contenders = {
            "bare posix_spawn and wait": [f"{bins}/bench/spawn_wait", str(count), "true"],
            "drun": [drun, "--standalone", f"--nproc_per_node={count}", "true"],
        }
        if hydra():
            contenders["mpiexec.hydra"] = [hydra(), "-n", str(count), "true"]
        show(f"launch: {count} worker{'s' * (count > 1)} of true", in_turns(contenders, rounds), "bare posix_spawn and wait")


def bench_help(drun, bins, rounds):
    show("help", in_turns({"true": ["true"], "drun --help": [drun, "--help"]}, rounds * 3), "true")


def processes_below(pid):
    """Returns pid and all its descendants."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    parents[int(entry)] = int(stat.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                pass
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def bench_memory(drun, bins, rounds):
    peaks = {}
    with subprocess.Popen([drun, "--standalone", "--nproc_per_node=64", "sh", "-c", "echo up; exec sleep 60"],
                          stdout=subprocess.PIPE, text=True) as job:
        for _ in range(64):
            job.stdout.readline()
        for pid in processes_below(job.pid):
            with open(f"/proc/{pid}/status") as status:
                text = status.read()
            if re.search(r"^Name:\s+drun", text, re.M):
                role = "guardian" if pid == job.pid else "agent"
                peaks[role] = int(re.search(r"VmHWM:\s+(\d+)", text).group(1)) / 1024
        job.terminate()
    print("memory: peak resident set with 64 workers")
    for role, megabytes in peaks.items():
        print(f"  {role:<28} {megabytes:9.1f} MB")


def bench_short(drun, bins, rounds, runs=10000):
    """Runs many short jobs of 1 to 64 workers, some failing. There must be no hang and no wrong exit code."""
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    hangs = wrong = 0
    begin = time.perf_counter()
    for i in range(runs):
        count = chance.choice((1, 2, 3, 4, 8, 8, 16, 64)) if i % 10 == 0 else chance.randint(1, 4)
        code = chance.choice((0, 0, 1, 3, 77, 255))
        who = chance.randrange(count)
        script = f"[ $RANK = {who} ] && exit {code}; exit 0"
        try:
            done = subprocess.run([drun, "--standalone", f"--nproc_per_node={count}", "sh", "-c", script],
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
            if done.returncode != code:
                wrong += 1
                print(f"  wrong: run {i}, {count} workers, rank {who} exits {code}, drun {done.returncode}\n{done.stderr.decode()}")
        except subprocess.TimeoutExpired:
            hangs += 1
            print(f"  hang: run {i}, {count} workers, rank {who} exits {code}")
    took = time.perf_counter() - begin
    print(f"short: {runs} runs in {took:.0f} s, seed {seed}: {hangs} hangs, {wrong} wrong exit codes")


def bench_latency(drun, bins, rounds):
    """Measures the time from a failing worker's exit to the last SIGTERM on three nodes."""
    milliseconds = []
    for _ in range(rounds * 3):
        with tempfile.TemporaryDirectory() as place:
            port = free_port()
            nodes = []
            for node in range(3):
                program = ["sh", "-c", f"kind=wait; [ $RANK = 5 ] && kind=fail; exec {bins}/workers/stamp $kind $WORLD_SIZE {place} $RANK"]
                nodes.append(subprocess.Popen([drun, "--nnodes=3", f"--node_rank={node}", "--nproc_per_node=4",
                                               "--master_addr=127.0.0.1", f"--master_port={port}"] + program,
                                              stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            for node in nodes:
                node.wait(timeout=60)
            stamps = {rank: int(open(f"{place}/{rank}").read()) for rank in range(12)}
            failed = stamps.pop(5)
            milliseconds.append((max(stamps.values()) - failed) / 1e6)
    print("latency: from the exit of a failing worker until the last of 11 others on 3 nodes handles SIGTERM")
    print(f"  median {statistics.median(milliseconds):.2f} ms, min {min(milliseconds):.2f}, max {max(milliseconds):.2f}")


def free_port():
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def bench_output(drun, bins, rounds):
    """Writes labeled lines of 8 workers to a file. Measures MB/s, torn and lost lines, and drun's memory."""
    lines = f"{bins}/bench/lines"
    with tempfile.TemporaryDirectory() as place:
        count, size = 250000, 100

        def contender(name, command):
            speeds = []
            verdict = ""
            for _ in range(max(3, rounds // 3)):
                path = f"{place}/out"
                with open(path, "wb") as out:
                    begin = time.perf_counter()
                    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL, check=True)
                    took = time.perf_counter() - begin
                speeds.append(os.path.getsize(path) / took / 1e6)
                checked = subprocess.run([lines, "check", "8", str(count), str(size), path], capture_output=True, text=True)
                verdict = (checked.stdout + checked.stderr).strip()
                os.unlink(path)
            print(f"  {name:<28} {statistics.median(speeds):8.0f} MB/s   {verdict}")
            return statistics.median(speeds)

        print("output: labeled lines of 8 workers to one file")
        writer = [lines, "write", "env", str(count), str(size)]
        ours = contender("drun --output=labelled", [drun, "--standalone", "--nproc_per_node=8", "--output=labelled"] + writer)
        if hydra():
            best = contender("mpiexec.hydra -prepend-rank", [hydra(), "-n", "8", "-prepend-rank"] + writer)
            print(f"  drun is {ours / best:.1f} times as fast")


def bench_gather(drun, bins, rounds):
    import gather
    gather.run(drun, bins, free_port, max(1, rounds // 5))


def run_binary(*words):
    subprocess.run(list(words), check=True)


def bench_agents(drun, bins, rounds):
    run_binary(f"{bins}/bench/agents_bench")


def bench_store(drun, bins, rounds):
    """Measures 8,000 clients and their first requests on drun's store and on a minimal Python store, in turns, then requests per second."""
    here = os.path.dirname(os.path.abspath(__file__))

    def seconds(*words):
        out = subprocess.run([f"{bins}/bench/store_bench", "8000", "1", *words], check=True, capture_output=True, text=True).stdout
        return float(re.search(r"^median of 1: ([0-9.]+) s", out, re.MULTILINE).group(1))

    # Uses a new server for each run. After many earlier clients, a server accepts slowly: connections overflow its queue and
    # wait for a second.
    def plain_seconds():
        port = str(free_port())
        with subprocess.Popen([sys.executable, f"{here}/plain_store.py", port], stdout=subprocess.PIPE) as server:
            server.stdout.readline()
            try:
                return seconds(port)
            finally:
                server.kill()

    times = {"drun": [], "a plain Python epoll loop": []}
    for _ in range(rounds):
        times["drun"].append(seconds())
        times["a plain Python epoll loop"].append(plain_seconds())
    show("store: 8,000 clients connect and complete their first three requests", times, "drun")
    run_binary(f"{bins}/bench/store_bench", "8000", "1")


def bench_orphans(drun, bins, rounds, runs=1000):
    """Kills launchers in many ways, with workers that are hard to stop. No process may be left a second later."""
    here = os.path.dirname(os.path.abspath(__file__))
    run_binary(sys.executable, f"{here}/orphans", "--runs", str(runs), "--seed", str(random.randrange(1 << 30)), "--processes",
               "16", "--", drun, "--standalone", "--nproc_per_node=2", "--shutdown-timeout=1", f"{bins}/workers/tree", "stay")


def bench_hosts(drun, bins, rounds):
    """Measures `true` on three hosts over ssh from start to end, compared with mpirun and with bare logins on all three."""
    missing = [name for name in ("ssh", "ip", "unshare") if not shutil.which(name)]
    if os.geteuid() != 0 or missing or not shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin"):
        print("hosts: skipped: needs root, ip, unshare and sshd (package openssh-server)")
        return
    from ssh_hosts import SshHosts
    with SshHosts() as hosts:
        config = f"{hosts.place}/ssh_config"
        logins = " & ".join(f"ssh -F {config} node{number} true" for number in (1, 2, 3)) + " & wait"
        for count in (1, 8, 32):
            with open(f"{hosts.place}/hostfile", "w", encoding="ascii") as file:
                file.write("".join(f"node{number} slots={count}\n" for number in (1, 2, 3)))
            total = str(3 * count)
            contenders = {
                "drun --hostfile": hosts.command(drun, f"--ssh-args=-F {config}", "--hostfile", f"{hosts.place}/hostfile",
                                                 "-np", total, "true"),
                "three logins alone": hosts.command("sh", "-c", logins),
            }
            if shutil.which("mpirun"):
                contenders["mpirun --hostfile"] = hosts.command(
                    "mpirun", "--allow-run-as-root", "--hostfile", f"{hosts.place}/hostfile", "--bind-to", "none", "-np", total,
                    "--mca", "plm_rsh_args", f"-F {config}", "--mca", "oob_tcp_if_include", "10.79.0.0/24", "true")
            times = {name: [] for name in contenders}
            for _ in range(rounds):
                for name, command in contenders.items():
                    begin = time.perf_counter()
                    code = subprocess.run(["timeout", "30"] + command, stdin=subprocess.DEVNULL, capture_output=True).returncode
                    if code == 0:
                        times[name].append(time.perf_counter() - begin)
            # Open MPI 4.1.4 sometimes hangs with many short programs.
            show(f"hosts: true, {count} workers on each of three hosts over ssh",
                 {name: each for name, each in times.items() if each}, "drun --hostfile")
            for name, each in times.items():
                if len(each) < rounds:
                    print(f"  {name}: {rounds - len(each)} of {rounds} runs failed or did not end within 30 s")


def main():
    every = {name[6:]: function for name, function in globals().items() if name.startswith("bench_")}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in every]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(every)}")
    bins = os.path.abspath(arguments.bin)
    for name in arguments.names or every:
        every[name](f"{bins}/drun", bins, arguments.rounds)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measures how long `drun --hosts` takes to start an agent on each of 64 machines, at several fanouts.

    tests/bench/ssh_many.py [--hosts=64] [--runs=3] [--fanouts=2,8,64]

The machines are network namespaces with an sshd each (ssh_hosts.py), so all of them share this machine's cores. A run measures the
wall time of a job of `true` with one worker per host, from the first login to the end of all agents. It also measures, in turns, one bare
ssh login, and bare logins on all hosts with the fanout as the number of concurrent logins. It prints the bound as well: 3 logins x hosts /
fanout. Needs root
and sshd. Exits with 77 if it cannot run.
"""
import argparse
import concurrent.futures
import os
import shutil
import statistics
import subprocess
import sys
import time

from hosts import can_have_hosts
from ssh_hosts import SshHosts

DRUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/bin/drun")


def wall_ms(action):
    begin = time.monotonic()
    action()
    return (time.monotonic() - begin) * 1000


def run(words):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(f"{words[-6:]}: {done.stderr.decode()}")


def measure(hosts, fanouts, runs):
    config = f"{hosts.place}/ssh_config"
    names = [name for _, name, _ in hosts.nodes]

    def login(name):
        run(hosts.command("ssh", "-T", "-F", config, name, "true"))

    def all_logins(fanout):
        with concurrent.futures.ThreadPoolExecutor(fanout) as pool:
            list(pool.map(login, names))

    def job(fanout):
        run(hosts.command(DRUN, "--ssh-args", f"-F {config}", "--hosts=" + ",".join(names), f"--fanout={fanout}", "true"))

    one = [wall_ms(lambda: login(names[turn % len(names)])) for turn in range(10)]
    print(f"one login: median {statistics.median(one):.0f} ms ({min(one):.0f} to {max(one):.0f})", flush=True)
    print("fanout | drun, ms (all runs) | bare logins, ms (all runs) | bound, ms", flush=True)
    for fanout in fanouts:
        logins, jobs = [], []
        for _ in range(runs):
            logins.append(wall_ms(lambda: all_logins(fanout)))
            jobs.append(wall_ms(lambda: job(fanout)))
        bound = 3 * statistics.median(one) * len(names) / fanout
        shown = [" ".join(f"{each:.0f}" for each in sorted(times)) for times in (jobs, logins)]
        print(f"{fanout} | {statistics.median(jobs):.0f} ({shown[0]}) | {statistics.median(logins):.0f} ({shown[1]}) | {bound:.0f}",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--fanouts", default="2,8,64")
    options = parser.parse_args()
    os.environ["PATH"] += ":/usr/sbin"
    if not can_have_hosts() or not shutil.which("sshd"):
        print("ssh_many.py: needs root, ip, unshare and sshd", file=sys.stderr)
        return 77
    print(f"{options.hosts} hosts on {os.cpu_count()} cores, load before {os.getloadavg()[0]:.1f}", flush=True)
    with SshHosts(options.hosts) as hosts:
        measure(hosts, [int(each) for each in options.fanouts.split(",")], options.runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measures how long the launcher of `drun --hosts` takes for many hosts, without the cost of sshd and agents.

    tests/bench/thousand_hosts.py [--runs=3]

quick_agent.c takes the place of ssh: it waits for the time of a login and answers as an agent, with the facts that a real agent has
reported. Prints the wall time of a job of `true`, and the processor time and the largest process of the launcher and its children.
"""
import argparse
import os
import resource
import statistics
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
DRUN = os.path.join(HERE, "../../build/bin/drun")


def start(place, hosts, fanout, **variables):
    words = [DRUN, f"--ssh={place}/agent", f"--hosts=h[1-{hosts}]", f"--fanout={fanout}", "true"]
    return subprocess.run(words, cwd=place, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False,
                          env=os.environ | {"FACTS": f"{place}/facts"} | variables)


def save_facts(place):
    """Stores the answer of a real agent to the launcher's first line."""
    start(place, 1, 1, LOGIN_MS="0", START=f"{place}/start")
    agent = subprocess.Popen([DRUN, "--from-stdin"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with open(f"{place}/start", "rb") as file:
        agent.stdin.write(file.read())
    agent.stdin.flush()
    agent.stdout.readline()  # the preamble
    payload_bytes = int.from_bytes(agent.stdout.read(5)[1:], "big")
    with open(f"{place}/facts", "wb") as file:
        file.write(agent.stdout.read(payload_bytes))
    agent.stdin.close()
    agent.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["cc", "-O1", "-o", f"{place}/agent", f"{HERE}/quick_agent.c"], check=True)
        save_facts(place)
        print("hosts | login, ms | fanout | s (all runs) | processor time, s")
        for hosts, login_ms, fanout in ((1000, 0, 8), (4000, 0, 8), (1000, 100, 64), (1000, 300, 32), (1000, 300, 64), (1000, 300, 256)):
            walls, before = [], resource.getrusage(resource.RUSAGE_CHILDREN)
            for _ in range(runs):
                begin = time.monotonic()
                ended = start(place, hosts, fanout, LOGIN_MS=str(login_ms))
                walls.append(time.monotonic() - begin)
                if ended.returncode != 0:
                    raise RuntimeError(ended.stderr.decode())
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / runs
            print(f"{hosts} | {login_ms} | {fanout} | {statistics.median(walls):.2f} ({' '.join(f'{each:.2f}' for each in sorted(walls))}) | "
                  f"{used:.1f}", flush=True)
        print(f"largest process: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss} KiB")


if __name__ == "__main__":
    main()

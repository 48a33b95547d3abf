#!/usr/bin/env python3
"""Measures how soon a job on three hosts, which are network namespaces (hosts.py), stops and restarts after a fault. Needs root.

    tests/bench/recovery.py [--bin build/bin] [--runs N, 20] [--heartbeat SECONDS, 2] [failure] [agent] [cable] [leader] [drain]

Each host has 4 workers, which SIGTERM ends at once. All times start at the fault, on the clock of this program, which holds a pidfd of
each worker:

failure: kills a worker of host 3. Time until the other 11 workers are gone, and until the 12 of the next round have started.
agent:   kills the agent of host 3. Time until its processes are gone, until the other 8 workers are gone, and until the 8 workers of
         the next round have started.
cable:   disconnects host 3. The same times. The end of host 3's workers depends on host 3 alone.
leader:  kills the coordinator's agent, one of three possible coordinators. The same times.
drain:   sends SIGTERM to the coordinator's agent, one of three possible coordinators. The same times.
"""
import argparse
import contextlib
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import time

from hosts import Hosts, can_have_hosts

WORKERS = 4
PATIENCE = 60  # seconds, for anything


class Job:
    """Agents on all hosts, and the known state of their workers."""

    def __init__(self, hosts, drun, number, heartbeat, seats):
        self.hosts = hosts
        self.path = f"{hosts.place}/begun{number}"
        os.mkfifo(self.path)
        self.begun = os.open(self.path, os.O_RDWR)
        self.text = b""
        self.pidfds = {}  # of live workers -> (round, node, pid)
        self.rounds = {}  # round -> {pid: start time}
        self.gone = {}    # (round, node, pid) -> end time
        seats = ",".join(f"{address}:29400" for _, _, address in hosts.nodes[:seats])
        words = [drun, "--nnodes=2:3", f"--nproc-per-node={WORKERS}", "--rdzv-backend=c10d", f"--rdzv-endpoint={seats}",
                 f"--rdzv-id=bench{number}", "--max-restarts=3", f"--heartbeat-timeout={heartbeat}", "--min-uptime=0",
                 "--rdzv-conf=last_call_timeout=30", "sh", "-c",
                 f"echo $DRUN_ROUND $GROUP_RANK $(hostname) $$ > {self.path}; exec sleep 1000"]
        self.agents = []
        self.events = [f"{hosts.place}/events{number}.{node}" for node, _, _ in hosts.nodes]
        for (node, _, _), events in zip(hosts.nodes, self.events):
            self.agents.append(subprocess.Popen(hosts.on(node, words[0], f"--events={events}", *words[1:]), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                                stderr=open(f"{hosts.place}/log{number}.{node}", "wb")))
        # A new seat does not vote before this time, because it may have forgotten an earlier vote. That affects only
        # jobs that have just started.
        self.is_settled_from = time.monotonic() + heartbeat / 2

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for agent in self.agents:
            agent.kill()
        for agent in self.agents:
            agent.wait()
        for pidfd in list(self.pidfds):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
        os.close(self.begun)

    def until(self, condition, what):
        poll = select.poll()
        poll.register(self.begun, select.POLLIN)
        for pidfd in self.pidfds:
            poll.register(pidfd, select.POLLIN)
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end:
                sys.exit(f"after {PATIENCE} s still waiting until {what}; rounds: { {number: len(each) for number, each in self.rounds.items()} }")
            for descriptor, _ in poll.poll(1000):
                now = time.monotonic()
                if descriptor == self.begun:
                    for pidfd in self.note_begun(now):
                        poll.register(pidfd, select.POLLIN)
                else:
                    self.gone[self.pidfds.pop(descriptor)] = now
                    poll.unregister(descriptor)
                    os.close(descriptor)

    def note_begun(self, now):
        """Yields pidfds of the workers that have reported their start since the last call."""
        self.text += os.read(self.begun, 65536)
        *lines, self.text = self.text.split(b"\n")
        for line in lines:
            words = line.decode().split()
            number, node, pid = int(words[0]), words[2], int(words[3])
            self.rounds.setdefault(number, {})[pid] = now
            try:
                pidfd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            self.pidfds[pidfd] = (number, node, pid)
            yield pidfd

    def until_round_of(self, count, after=-1):
        """Waits for the first round later than `after` with `count` workers, and returns it."""
        found = []

        def is_there():
            found[:] = [number for number, each in self.rounds.items() if number > after and len(each) >= count]
            return bool(found)
        self.until(is_there, f"a round of {count} workers has begun")
        return found[0]

    def until_agents_are_done(self, number):
        """Waits until every agent has logged the start of its workers in that round."""
        end = time.monotonic() + PATIENCE
        told = 0
        while told < WORKERS * len(self.events):
            if time.monotonic() > end:
                sys.exit(f"after {PATIENCE} s only {told} workers of round {number} are in the files of events")
            time.sleep(0.005)
            told = 0
            for path in self.events:
                with open(path, encoding="utf-8") as file:
                    events = [json.loads(line) for line in file if line.endswith("\n")]
                told += sum(each["event"] == "worker_started" and each["round"] == number for each in events)

    def workers(self, number, nodes):
        return {who for who in [*self.pidfds.values(), *self.gone] if who[0] == number and who[1] in nodes}

    def agent_pid(self, index):
        """Returns the agent's pid. The started process is the guardian, and the agent is its child."""
        guardian = self.agents[index].pid
        with open(f"/proc/{guardian}/task/{guardian}/children", encoding="ascii") as file:
            return int(file.read().split()[0])


def measure(job, accident, lost):
    """Returns the milliseconds from the fault until the lost hosts' workers are gone, the others are gone, and the next round's have started."""
    nodes = {f"node{number}" for number, _, _ in job.hosts.nodes}
    first = job.until_round_of(WORKERS * len(nodes))
    job.until_agents_are_done(first)
    job.until(lambda: time.monotonic() >= job.is_settled_from, "the seats have been there for a lease")
    began = time.monotonic()
    accident(job, first)
    stay, away = job.workers(first, nodes - lost), job.workers(first, lost)
    second = job.until_round_of(WORKERS * len(nodes - lost), first)
    job.until(lambda: all(who in job.gone for who in stay | away), "the first round's workers are gone")

    def since(moments):
        return (max(moments) - began) * 1000 if moments else None
    return since([job.gone[who] for who in away]), since([job.gone[who] for who in stay]), since(job.rounds[second].values())


def kill_worker(job, number):
    pid = next(who[2] for who in job.workers(number, {"node3"}))
    os.kill(pid, signal.SIGKILL)


ACCIDENTS = {
    "failure": (1, set(), kill_worker),
    "agent": (1, {"node3"}, lambda job, _: os.kill(job.agent_pid(2), signal.SIGKILL)),
    "cable": (1, {"node3"}, lambda job, _: job.hosts._shell(f"ip -n {job.hosts.name}s link set v3 down")),
    "leader": (3, {"node1"}, lambda job, _: os.kill(job.agent_pid(0), signal.SIGKILL)),
    "drain": (3, {"node1"}, lambda job, _: os.kill(job.agent_pid(0), signal.SIGTERM)),
}


def text_of(values):
    values = [value for value in values if value is not None]
    if not values:
        return f"{'':>26}"
    return f"{statistics.median(values):8.0f} ({min(values):.0f} to {max(values):.0f})".ljust(26)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--heartbeat", type=float, default=2)
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in ACCIDENTS]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(ACCIDENTS)}")
    if not can_have_hosts():
        print("skipped: needs root, ip and unshare")
        return
    drun = os.path.abspath(f"{arguments.bin}/drun")
    print(f"heartbeat timeout {arguments.heartbeat} s, {arguments.runs} runs, ms: median (least to most)")
    print(f"{'':<10}{'lost host: workers gone':<26}{'others: workers gone':<26}{'next round begun':<26}")
    with Hosts(3) as hosts:
        for name in arguments.names or ACCIDENTS:
            seats, lost, accident = ACCIDENTS[name]
            results = []
            for number in range(arguments.runs):
                with Job(hosts, drun, f"{name}{number}", arguments.heartbeat, seats) as job:
                    results.append(measure(job, accident, lost))
                hosts._shell(f"ip -n {hosts.name}s link set v3 up")
            print(f"{name:<10}" + "".join(text_of(column) for column in zip(*results)), flush=True)


if __name__ == "__main__":
    main()

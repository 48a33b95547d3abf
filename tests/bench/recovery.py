#!/usr/bin/env python3
"""How soon a job of three hosts stops and goes on after an accident, which are network namespaces (hosts.py). Needs root.

    tests/bench/recovery.py [--bin build/bin] [--runs N, 20] [--heartbeat SECONDS, 2] [failure] [agent] [cable] [leader] [drain]

4 workers on each host, which TERM ends at once. From the accident, on one clock (this program's, which holds a pidfd of each worker):

failure: a worker of host 3 is killed; until the 11 others are gone, and until the 12 of the next round have begun.
agent:   the agent of host 3 is killed; until all that it left there is gone, until the 8 others are, until the next round's 8 have begun.
cable:   host 3's cable is pulled; the same. Until host 3's workers are gone is the other side's own matter.
leader:  the coordinator's agent is killed, of three that could coordinate; the same.
drain:   the coordinator's agent gets SIGTERM, of three that could coordinate; the same.
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
    """Agents on all hosts, and what is known of their workers."""

    def __init__(self, hosts, drun, number, heartbeat, seats):
        self.hosts = hosts
        self.path = f"{hosts.place}/begun{number}"
        os.mkfifo(self.path)
        self.begun = os.open(self.path, os.O_RDWR)
        self.text = b""
        self.pidfds = {}  # of living workers: (round, node, pid)
        self.rounds = {}  # round -> {pid: when it had begun}
        self.gone = {}    # (round, node, pid) -> when
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
        # Before, a seat's vote may be one that it has forgotten: only a job that has just begun waits for that.
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
        """Pidfds of those that have told since."""
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
        """The first round later than `after` with so many workers."""
        found = []

        def is_there():
            found[:] = [number for number, each in self.rounds.items() if number > after and len(each) >= count]
            return bool(found)
        self.until(is_there, f"a round of {count} workers has begun")
        return found[0]

    def until_agents_are_done(self, number):
        """With the begin of that round: each writes down its workers when they all run."""
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
        """The agent's: of the guardian, which is the process that was started, the child."""
        guardian = self.agents[index].pid
        with open(f"/proc/{guardian}/task/{guardian}/children", encoding="ascii") as file:
            return int(file.read().split()[0])


def measure(job, accident, lost):
    """Milliseconds from the accident until (the lost hosts' workers, the others' are gone, the next round's have begun)."""
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

#!/usr/bin/env python3
"""Injects faults into real jobs in network namespaces: an elastic training job must always end with the right result.

    tests/chaos/chaos.py [--bin build/bin] [--faults 500] [--job-faults 12] [--seed N] [--only KIND,...] [--etcd] [--verbose]

A job is `train --checkpoint` on four hosts (2 workers each, `--nnodes=2:4`, three of them can coordinate). Each host is a
network namespace with a separate address, host name and temporary directory. The job gets a series of faults, at the same
time or seconds apart, and killed agents are started again. Then it runs undisturbed. Checked after each fault and at the end:

  - the processes of a killed agent or guardian are gone from that host within a second; the longest time is printed;
  - the job ends within a time limit, with exit code 0 on every host that has an agent then;
  - train's check succeeds: all ranks have the same weights as a run in one process without faults;
  - a second after its last agent has ended, the job has no process and no temporary directory anywhere.

With --etcd a real etcd on a separate host elects the coordinator among all four. It is also killed, suspended and disconnected.

Needs root and ip (iproute2), etcd for --etcd, and tc and ss for some faults, which are otherwise left out. The faults depend only on the
printed seed, but their effects also depend on the machine's timing.
"""
import argparse
import base64
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HOSTS = 4
WORKERS = 2
STEPS = 800
CALM_STEPS = 250     # the last steps run without faults, so that missing hosts can rejoin
STEP_MS = 15
ETCD_HOST = HOSTS    # a host without an agent
LOST = 122           # exit code of an agent that was disconnected from the others
TOLD_TO_GO = (128 + signal.SIGTERM, -signal.SIGTERM)  # the second: the signal came before its handler was installed
GOES_WITHIN = 15     # seconds: 2 for workers, 3 for a lost connection, up to 6 for a suspended agent
ORPHANS_WITHIN = 1   # seconds: drun's guarantee for the processes of a dead agent
LEASE_WITHIN = 5     # seconds until etcd removes the key of a leader that could not do so
ENDS_WITHIN = 90    # seconds after the last fault


def processes_with(mark):
    """Returns pid and command of the processes with `mark` in their environment."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark.encode() in file.read().split(b"\0"):
                    with open(f"/proc/{name}/cmdline", "rb") as words:
                        found.append((int(name), words.read().replace(b"\0", b" ").decode(errors="replace")))
        except OSError:
            pass
    return found


def stat_of(pid):
    """Returns state and parent, or (None, None) if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(") ")[2].split()
        return fields[0], int(fields[1])
    except OSError:
        return None, None


def until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class Orphans:
    """Measures how long processes outlive their agent, and checks the guarantee."""
    longest = 0.0        # seconds, over all measurements

    @classmethod
    def wait(cls, marks, since, what):
        """Waits until no process has one of the marks. A process counts as alive at the start of a scan that finds it.
        This excludes the time of a scan on a loaded machine, and the pause before the next scan."""
        while True:
            looked = time.monotonic()
            found = [process for mark in marks for process in processes_with(mark)]
            if not found:
                return
            cls.longest = max(cls.longest, looked - since)
            if looked - since > ORPHANS_WITHIN:
                raise Trouble(f"{what}, and {looked - since:.2f} s later there still are {found}")
            time.sleep(0.005)


class Hosts:
    """Network namespaces on one bridge: 10.83.0.1, 2, ..."""

    def __enter__(self):
        self.place = tempfile.mkdtemp(prefix="drun-chaos-")
        self.name = f"drunchaos{os.getpid()}"
        try:
            self.shell(f"ip netns add {self.name}s; ip -n {self.name}s link add br0 type bridge; ip -n {self.name}s link set br0 up")
            for host in [*range(HOSTS), ETCD_HOST]:
                own = self.netns(host)
                self.shell(f"ip netns add {own}; ip -n {self.name}s link add v{host} type veth peer name eth0 netns {own}; "
                           f"ip -n {self.name}s link set v{host} master br0 up; ip -n {own} addr add 10.83.0.{host + 1}/24 dev eth0; "
                           f"ip -n {own} link set eth0 up; ip -n {own} link set lo up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for suffix in [str(host) for host in range(HOSTS + 1)] + ["s"]:
            subprocess.run(["ip", "netns", "del", self.name + suffix], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(self.place, ignore_errors=True)

    def netns(self, host):
        return f"{self.name}{host}"

    def address(self, host):
        return f"10.83.0.{host + 1}"

    def shell(self, script, check=True):
        return subprocess.run(["sh", "-ec", script], check=check, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def command(self, host, script, words):
        """Returns a command that runs the words on that host, after `script`, in separate mount and host name namespaces."""
        return ["ip", "netns", "exec", self.netns(host), "unshare", "-u", "sh", "-c",
                f"hostname node{host}; {script}; exec \"$@\"", "sh", *words]

    def link(self, host, state):
        self.shell(f"ip -n {self.name}s link set v{host} {state}")

    def shape(self, host, what):
        return self.shell(f"tc -n {self.name}s qdisc replace dev v{host} root netem {what}", check=False)

    def unshape(self, host):
        self.shell(f"tc -n {self.name}s qdisc del dev v{host} root", check=False)

    def cut(self, host, other):
        self.shell(f"ip -n {self.netns(host)} route add blackhole {self.address(other)}/32", check=False)

    def mend(self, host, other):
        self.shell(f"ip -n {self.netns(host)} route del blackhole {self.address(other)}/32", check=False)


class Etcd:
    """An etcd with a single member, for all jobs."""

    def __init__(self, hosts):
        self.hosts, self.process = hosts, None
        self.endpoint = f"{hosts.address(ETCD_HOST)}:2379"
        self.start()
        if not until(self.answers, 20):
            self.kill()
            raise SystemExit("etcd does not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def start(self):
        if self.process and self.process.poll() is None:
            return
        url = f"http://{self.endpoint}"
        words = ["etcd", "--name", "e", "--data-dir", f"{self.hosts.place}/etcd", "--listen-client-urls", url, "--advertise-client-urls", url,
                 "--listen-peer-urls", "http://127.0.0.1:2380", "--initial-advertise-peer-urls", "http://127.0.0.1:2380",
                 "--initial-cluster", "e=http://127.0.0.1:2380", "--log-level", "error"]
        self.process = subprocess.Popen(["ip", "netns", "exec", self.hosts.netns(ETCD_HOST), *words], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answers(self):
        words = ["ip", "netns", "exec", self.hosts.netns(ETCD_HOST), "bash", "-c", f"exec 3<>/dev/tcp/{self.hosts.address(ETCD_HOST)}/2379"]
        return subprocess.run(words, stderr=subprocess.DEVNULL, check=False).returncode == 0

    def keys(self):
        """Returns the keys that jobs have left in etcd."""
        script = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], sys.argv[2].encode(), timeout=10).read().decode())"
        words = ["ip", "netns", "exec", self.hosts.netns(ETCD_HOST), sys.executable, "-c", script, f"http://{self.endpoint}/v3/kv/range",
                 '{"key":"AA==","range_end":"AA==","keys_only":true}']
        answer = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        return [base64.b64decode(found["key"]).decode() for found in json.loads(answer).get("kvs", [])]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def signal(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)


class Job:
    def __init__(self, hosts, bins, number, etcd=None):
        self.hosts, self.bins, self.etcd = hosts, bins, etcd
        self.id = f"{hosts.name}-{number}"
        self.place = f"{hosts.place}/{number}"
        os.mkdir(self.place)
        self.agents = {}      # host -> the started process, which is the guardian
        self.ended = []       # (host, exit code) of agents that exited by themselves
        self.starts = 0
        self.drains = 0
        self.due = []         # (time, "start" or "mend", function): later actions of a fault

    def mark(self, host):
        return f"DRUN_CHAOS={self.id}.{host}"

    def start(self, host):
        seats = ",".join(f"{self.hosts.address(each)}:29400" for each in range(3))
        meeting = ["--rdzv-backend=etcd", f"--rdzv-endpoint={self.etcd.endpoint}"] if self.etcd else ["--rdzv-backend=c10d", f"--rdzv-endpoint={seats}"]
        words = [f"{self.bins}/drun", f"--nnodes=2:{HOSTS}", f"--nproc-per-node={WORKERS}", *meeting, f"--rdzv-id={self.id}", "--log-level=debug",
                 "--max-restarts=1000", "--heartbeat-timeout=3", "--shutdown-timeout=2", "--min-uptime=0",
                 "--rdzv-conf=join_timeout=120,last_call_timeout=1", f"{self.bins}/examples/train",
                 "--checkpoint", f"{self.place}/checkpoint", "--steps", str(STEPS), "--step-ms", str(STEP_MS)]
        temporary = f"{self.place}/tmp{host}"
        if not os.path.isdir(temporary):
            os.mkdir(temporary)
            self.hosts.shell(f"mount -t tmpfs -o size=256k none {temporary}")
        self.starts += 1
        log = open(f"{self.place}/log.{self.starts}.node{host}", "wb")
        environment = dict(os.environ, DRUN_CHAOS=f"{self.id}.{host}", TMPDIR=temporary)
        self.agents[host] = subprocess.Popen(self.hosts.command(host, "true", words), env=environment, stdin=subprocess.DEVNULL,
                                             stdout=log, stderr=subprocess.STDOUT)
        log.close()

    def later(self, seconds, kind, what):
        self.due.append((time.monotonic() + seconds, kind, what))
        self.due.sort(key=lambda item: item[0])

    def do_due(self, kinds=("start", "mend"), by=None):
        """Runs all actions that are due by the time `by` (default: now; infinity: all)."""
        while any(item[1] in kinds and item[0] <= (by or time.monotonic()) for item in self.due):
            item = next(item for item in self.due if item[1] in kinds)
            self.due.remove(item)
            item[2]()

    def note_ends(self):
        """Returns the agents that have exited since the last call, as (host, exit code)."""
        ends = [(host, agent.returncode) for host, agent in self.agents.items() if agent.poll() is not None]
        for host, _ in ends:
            del self.agents[host]
        self.ended += ends
        return ends

    def family(self, host):
        """Returns the guardian, agent and workers of a host, as far as they exist."""
        guardian = self.agents[host].pid if host in self.agents else None
        if guardian is None:
            return None, None, []
        others = [pid for pid, _ in processes_with(self.mark(host)) if pid != guardian]
        agent = next((pid for pid in others if stat_of(pid)[1] == guardian), None)
        return guardian, agent, [pid for pid in others if stat_of(pid)[1] == agent]

    def step(self):
        try:
            with open(f"{self.place}/checkpoint", encoding="ascii") as file:
                return int(file.read().split(" ", 1)[0])
        except (OSError, ValueError):
            return 0

    def clear(self):
        """Removes everything of the job, in any state."""
        self.do_due(("mend",), by=float("inf"))
        for agent in self.agents.values():
            agent.kill()
            agent.wait()
        for host in range(HOSTS):
            for pid, _ in processes_with(self.mark(host)):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            subprocess.run(["umount", "-l", f"{self.place}/tmp{host}"], stderr=subprocess.DEVNULL, check=False)

    def logs(self):
        return sorted(name for name in os.listdir(self.place) if name.startswith("log."))

    def text(self, name):
        with open(f"{self.place}/{name}", "rb") as file:
            return file.read().decode(errors="replace")


class Trouble(Exception):
    pass


def kill_one(job, random, which):
    host = random.choice(sorted(job.agents))
    guardian, agent, workers = job.family(host)
    victim = {"guardian": guardian, "agent": agent, "worker": random.choice(workers) if workers else None}[which]
    if victim is None:
        return None
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        return None
    killed = time.monotonic()
    if which != "worker":
        job.agents.pop(host).wait()
        Orphans.wait([job.mark(host)], killed, f"the {which} of node{host} was killed")
        job.later(random.uniform(0, 2), "start", lambda: job.start(host))
    return f"killed the {which} of node{host}"


def stop_agent(job, random):
    host = random.choice(sorted(job.agents))
    agent = job.family(host)[1]
    if agent is None:
        return None
    try:
        os.kill(agent, signal.SIGSTOP)
    except ProcessLookupError:
        return None
    seconds = random.uniform(0.2, 6)

    def go_on():
        try:
            os.kill(agent, signal.SIGCONT)
        except ProcessLookupError:
            pass
    job.later(seconds, "mend", go_on)
    return f"stopped the agent of node{host} for {seconds:.1f} s"


def link_down(job, random):
    host = random.randrange(HOSTS)
    seconds = random.uniform(0.2, 6)
    job.hosts.link(host, "down")
    job.later(seconds, "mend", lambda: job.hosts.link(host, "up"))
    return f"pulled the cable of node{host} for {seconds:.1f} s"


def cut_pair(job, random):
    host, other = random.sample(range(HOSTS), 2)
    seconds = random.uniform(0.5, 6)
    job.hosts.cut(host, other)
    job.later(seconds, "mend", lambda: job.hosts.mend(host, other))
    return f"node{host} sends nothing to node{other} for {seconds:.1f} s"


def reset_connections(job, random):
    """Both ends of the agents' and the workers' connections get a reset, or find that the other end is unknown."""
    host, other = random.sample(range(HOSTS), 2)
    command = ["ip", "netns", "exec", job.hosts.netns(host), "ss", "-K", "dst", job.hosts.address(other)]
    if not shutil.which("ss") or subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode != 0:
        return None
    return f"reset the connections between node{host} and node{other}"


def bad_line(job, random):
    host = random.randrange(HOSTS)
    what = random.choice(["loss 10%", "loss 30%", "delay 100ms 50ms", "delay 300ms", "duplicate 20%", "loss 5% delay 50ms reorder 25%"])
    if not job.hosts.shape(host, what):
        return None
    seconds = random.uniform(1, 5)
    job.later(seconds, "mend", lambda: job.hosts.unshape(host))
    return f"the line of node{host} has {what} for {seconds:.1f} s"


def full_disk(job, random):
    """Fills the file system on which the agents keep their workers' error files."""
    host = random.randrange(HOSTS)
    seconds = random.uniform(0.5, 3)
    path = f"{job.place}/tmp{host}/ballast{time.monotonic_ns()}"  # the file system may already be full
    try:
        with open(path, "wb") as file:
            while file.write(b"x" * 4096):
                file.flush()
    except OSError:
        pass
    job.later(seconds, "mend", lambda: os.path.exists(path) and os.unlink(path))
    return f"the temporary directory of node{host} is full for {seconds:.1f} s"


def drain(job, random):
    """Stops an agent. If too few agents, or no majority of the possible coordinators, are left, the job ends and continues when restarted."""
    host = random.choice(sorted(job.agents))
    agent = job.agents[host]
    agent.send_signal(signal.SIGTERM)
    job.drains += 1
    by = time.monotonic() + GOES_WITHIN

    def check():
        if time.monotonic() >= by and agent.poll() is None:
            raise Trouble(f"node{host} was told to go {GOES_WITHIN} s ago, and is still there")
    job.later(GOES_WITHIN, "mend", check)
    return f"told node{host} to go"


def kill_etcd(job, random):
    seconds = random.uniform(0.1, 8)
    job.etcd.kill()
    job.later(seconds, "mend", job.etcd.start)
    return f"killed etcd for {seconds:.1f} s"


def stop_etcd(job, random):
    seconds = random.uniform(0.1, 8)
    job.etcd.signal(signal.SIGSTOP)
    job.later(seconds, "mend", lambda: job.etcd.signal(signal.SIGCONT))
    return f"stopped etcd for {seconds:.1f} s"


def cut_from_etcd(job, random):
    host = random.randrange(HOSTS)
    seconds = random.uniform(0.5, 8)
    job.hosts.cut(host, ETCD_HOST)
    job.later(seconds, "mend", lambda: job.hosts.mend(host, ETCD_HOST))
    return f"node{host} sends nothing to etcd for {seconds:.1f} s"


ETCD_FAULTS = {
    "etcd": kill_etcd,
    "etcd-stop": stop_etcd,
    "etcd-way": cut_from_etcd,
}

FAULTS = {
    "worker": lambda job, random: kill_one(job, random, "worker"),
    "agent": lambda job, random: kill_one(job, random, "agent"),
    "guardian": lambda job, random: kill_one(job, random, "guardian"),
    "stop": stop_agent,
    "drain": drain,
    "cable": link_down,
    "pair": cut_pair,
    "reset": reset_connections,
    "line": bad_line,
    "disk": full_disk,
}


def play(job, faults, random, kinds, say):
    """Injects the faults, then waits until an agent exits with 0. Returns the number of faults."""
    began = time.monotonic()
    done, next_fault, calm_since = 0, began + random.uniform(0, 3), None
    for host in random.sample(range(HOSTS), HOSTS):
        job.start(host)
    while not any(code == 0 for _, code in job.ended):
        job.do_due()
        for host, code in job.note_ends():
            if code == 0:
                continue
            if code != LOST and not (code in TOLD_TO_GO and job.drains):
                raise Trouble(f"node{host} ended with {code}")
            say(f"node{host} {'was lost, and ' if code == LOST else ''}ended")
            job.later(random.uniform(0, 1), "start", lambda host=host: job.start(host))
        now = time.monotonic()
        is_calm = done == faults or job.step() >= STEPS - CALM_STEPS
        calm_since = (calm_since or now) if is_calm else None
        if not is_calm and now >= next_fault and len(job.agents) > 1:
            what = {**FAULTS, **ETCD_FAULTS}[random.choice(kinds)](job, random)
            if what:
                done += 1
                say(what)
            next_fault = time.monotonic() + random.choice([0, 0.1, 0.5, 1, 2]) * random.uniform(0.5, 1.5)
        if calm_since and not job.due and now - calm_since > ENDS_WITHIN:
            raise Trouble(f"not at its end {ENDS_WITHIN} s after the last fault")
        if now - began > 20 * faults + ENDS_WITHIN:
            raise Trouble("no end, and no faults left to wait for")
        time.sleep(0.02)
    return done


def finish(job, say):
    """Checks, after the first agent has exited, that the others exit with the right codes and that nothing is left."""
    say("over: " + ", ".join(f"node{host} with {code}" for host, code in job.ended))
    job.do_due(("mend",), by=float("inf"))
    job.ended.clear()
    is_out = until(lambda: (job.note_ends(), not job.agents)[1], 15)
    for host, agent in sorted(job.agents.items()):
        # It rejoined too late and waits for others. If it had workers, it would be a forgotten part of the job.
        if job.family(host)[2]:
            raise Trouble(f"node{host} still has workers")
        agent.send_signal(signal.SIGTERM)
    if not is_out and not until(lambda: (job.note_ends(), not job.agents)[1], 15):
        raise Trouble(f"node{sorted(job.agents)} did not end")
    bad = [(host, code) for host, code in job.ended if code not in (0, LOST, *TOLD_TO_GO)]
    if bad:
        raise Trouble("ended with " + ", ".join(f"{code} on node{host}" for host, code in bad))
    if not any("all ranks have identical weights" in job.text(name) for name in job.logs()):
        raise Trouble("no rank reports a right result")
    Orphans.wait([job.mark(host) for host in range(HOSTS)], time.monotonic(), "the last agent ended")
    left = [f"{host}:{name}" for host in range(HOSTS) for name in os.listdir(f"{job.place}/tmp{host}")]
    if job.etcd:
        # If etcd was down at the very end, the key expires with its lease. The state's lease is longer.
        until(job.etcd.answers, 10)
        until(lambda: f"/drun/{job.id}/leader" not in job.etcd.keys(), LEASE_WITHIN)
        left += [key for key in job.etcd.keys() if key == f"/drun/{job.id}/leader"]
    if left:
        raise Trouble(f"left behind: {left}")


def run_job(hosts, bins, number, faults, random, kinds, verbose, etcd):
    """Returns the number of faults, or None after an error, which was printed."""
    job = Job(hosts, bins, number, etcd)
    story = []
    began = time.monotonic()

    def say(text):
        story.append(f"{time.monotonic() - began:6.2f} s, step {job.step()}: {text}")
        if verbose:
            print("   ", story[-1], flush=True)

    try:
        done = play(job, faults, random, kinds, say)
        finish(job, say)
        if verbose:
            print(f"  job {number}: {done} faults, {time.monotonic() - began:.1f} s", flush=True)
        return done
    except Trouble as trouble:
        kept = tempfile.mkdtemp(prefix="drun-chaos-kept-")
        for name in job.logs():
            shutil.copy(f"{job.place}/{name}", kept)
        print(f"job {number}: {trouble}\n  " + "\n  ".join(story) + f"\n  logs: {kept}", flush=True)
        return None
    finally:
        job.clear()


def obstacle():
    """Returns why hosts cannot be created here, or an empty string."""
    missing = [name for name in ("ip", "unshare") if not shutil.which(name)]
    if os.geteuid() != 0 or missing:
        return "needs root, ip (iproute2) and unshare"
    name = f"drunchaos{os.getpid()}probe"
    script = f"ip netns add {name}; ip -n {name} link add br0 type bridge; ip netns exec {name} unshare -u true"
    tried = subprocess.run(["sh", "-ec", script], check=False, capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)
    return "" if tried.returncode == 0 else "cannot make network namespaces: " + " ".join(tried.stderr.split())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--faults", type=int, default=500, help="in all")
    parser.add_argument("--job-faults", type=int, default=12, help="at most, in one job")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--only", default="")
    parser.add_argument("--etcd", action="store_true", help="elects the coordinator")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    if why := obstacle():
        print(f"this test is skipped\nskipped: {why}")
        return 0
    if arguments.etcd and not shutil.which("etcd"):
        print("this test is skipped\nskipped: there is no etcd (etcd-server)")
        return 0
    wanted = arguments.only.split(",") if arguments.only else [*FAULTS, *(ETCD_FAULTS if arguments.etcd else [])]
    kinds = [kind for kind in wanted if kind != "line" or shutil.which("tc")]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # exits through __exit__
    print(f"seed {arguments.seed}", flush=True)
    done, jobs, failed = 0, 0, 0
    began = time.monotonic()
    with Hosts() as hosts, Etcd(hosts) if arguments.etcd else contextlib.nullcontext() as etcd:
        while done < arguments.faults:
            seed = arguments.seed * 1000 + jobs
            chance = random.Random(seed)
            count = min(chance.randint(1, arguments.job_faults), arguments.faults - done)
            met = run_job(hosts, os.path.abspath(arguments.bin), jobs, count, chance, kinds, arguments.verbose, etcd)
            jobs += 1
            if met is None:
                failed += 1
                if failed == 3:
                    break
            done += met if met else count
    print(f"{done} faults in {jobs} jobs, {time.monotonic() - began:.0f} s: {failed} jobs went wrong; "
          f"processes outlived their agent by at most {1000 * Orphans.longest:.0f} ms (promised: {1000 * ORPHANS_WITHIN})", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

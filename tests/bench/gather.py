"""Measures gathered lines (--gather-logs): speed, completeness, and the memory that a suspended reader costs."""
import glob
import os
import signal
import statistics
import subprocess
import tempfile
import time

LINE_BYTES = 100


class Job:
    """Two nodes on this machine, with one worker each that writes numbered lines. Node 0's console is `out`."""

    def __init__(self, drun, bins, port, lines, out, options=()):
        self.agents = []
        for node in (0, 1):
            command = [drun, "--nnodes=2", f"--node_rank={node}", "--master_addr=127.0.0.1", f"--master_port={port}", "--gather-logs",
                       *options, f"{bins}/bench/lines", "write", "env", str(lines), str(LINE_BYTES)]
            self.agents.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out if node == 0 else subprocess.DEVNULL,
                                                stderr=subprocess.DEVNULL))

    def wait(self):
        return [agent.wait() for agent in self.agents]

    def peaks(self):
        """Returns each agent's peak memory in MB. An agent is its guardian's child."""
        peaks = []
        for guardian in self.agents:
            with open(f"/proc/{guardian.pid}/task/{guardian.pid}/children", encoding="ascii") as children:
                agent = children.read().split()[0]
            with open(f"/proc/{agent}/status", encoding="ascii") as status:
                peaks += [int(line.split()[1]) / 1000 for line in status if line.startswith("VmHWM")]
        return peaks


def speed(drun, bins, free_port, rounds, options, what):
    lines = 2_000_000
    speeds = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        for _ in range(rounds):
            for old in glob.glob(f"{place}/*"):
                os.remove(old)
            with open(f"{place}/out", "wb") as out:
                begin = time.perf_counter()
                codes = Job(drun, bins, free_port(), lines, out, options).wait()
                took = time.perf_counter() - begin
            check = [f"{bins}/bench/lines", "check", "2", str(lines), str(LINE_BYTES), f"{place}/out"]
            if codes != [0, 0] or subprocess.run(check, stdout=subprocess.DEVNULL).returncode != 0:
                print(f"  {what}: lines are lost or torn, or the job failed: {codes}")
            speeds.append(2 * lines * LINE_BYTES / took / 1e6)
    print(f"  {what:<28} {statistics.median(speeds):6.0f} MB/s, every line checked (from the first start to the last exit; "
          f"{min(speeds):.0f} to {max(speeds):.0f})")


def stopped_reader(drun, bins, free_port):
    """Uses a pipe that is never read as the console. Reads the peak memory after 2 s and again later."""
    reading, writing = os.pipe()
    job = Job(drun, bins, free_port(), 10_000_000, writing)
    time.sleep(2)
    soon = job.peaks()
    time.sleep(5)
    later = job.peaks()
    os.close(writing)
    for agent in job.agents:
        agent.send_signal(signal.SIGTERM)
    os.close(reading)
    job.wait()
    print(f"  a console that stops reading: peak resident sets after 2 s {soon[0]:.1f} and {soon[1]:.1f} MB (nodes 0 and 1), "
          f"after 7 s {later[0]:.1f} and {later[1]:.1f} MB")


def run(drun, bins, free_port, rounds):
    print("gather: two agents on loopback with one worker each, all lines on node 0's console (a file)")
    with tempfile.TemporaryDirectory() as place:
        secret = f"{place}/secret"
        with open(os.open(secret, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
            file.write("a secret for one measurement of 32 bytes\n")
        speed(drun, bins, free_port, rounds, (), "labelled")
        speed(drun, bins, free_port, rounds, (f"--secret-file={secret}",), "labelled, over TLS")
    stopped_reader(drun, bins, free_port)

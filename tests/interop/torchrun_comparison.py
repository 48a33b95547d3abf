#!/usr/bin/env python3
"""Checks every row of README.md's table "drun and torchrun" against the installed torchrun.

usage: torchrun_comparison.py [--drun build/bin/drun] [--torchrun PATH] [ROW ...]

Each row of the table has a function in this file, found by the text of its first column. The function runs both launchers
and checks the statements of the row. A row without a function and a function without a row are failures. Needs PyTorch 2.15
or newer, and takes about three minutes.
"""
import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
from torchrun import DEFAULT_TORCHRUN, below, command_of, free_port, kill_session, started, wait_for  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 20  # seconds that torchrun gets to disprove a row
ROWS = {}


def row(text):
    def keep(function):
        ROWS[text] = function
        return function
    return keep


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Scene:
    """A directory and the processes that run in it."""

    def __init__(self, program):
        self.program = program
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            kill_session(process)
        for path in self.path.glob("pid.*"):
            try:
                os.kill(int(path.read_text()), signal.SIGKILL)
            except (ProcessLookupError, ValueError):
                pass
        self.folder.cleanup()

    def start(self, *words, script=None, **options):
        """Starts a launcher; `script` runs under sh. Its stderr is written to err.N, where N is the number of the launcher."""
        with open(self.path / f"err.{len(self.processes)}", "w") as err:
            command = [self.program, *words]
            if script:  # in a file, because torchrun replaces $ in arguments
                (self.path / "worker.sh").write_text(script)
                command += ["--no-python", "sh", "worker.sh"]
            self.processes.append(started(command, cwd=self.path, stderr=err, **options))
        return self.processes[-1]

    def err(self, number=0):
        return (self.path / f"err.{number}").read_text()

    def has(self, *names, seconds=120):
        wait_for(lambda: all((self.path / name).exists() and (self.path / name).read_text().endswith("\n") for name in names), seconds, names)

    def pid(self, name):
        return int((self.path / name).read_text())

    def exit_code(self, *words, script=None, seconds=120, **options):
        return self.start(*words, script=script, **options).wait(timeout=seconds)

    def static(self, node, port, nnodes=2):
        return [f"--nnodes={nnodes}", f"--node-rank={node}", "--master-addr=127.0.0.1", f"--master-port={port}"]

    def elastic(self, port, nodes="1:2"):
        endpoint = port if isinstance(port, str) else f"127.0.0.1:{port}"
        return [f"--nnodes={nodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", "--rdzv-id=7", "--max-restarts=3"]


def is_over(process, seconds):
    try:
        return process.wait(timeout=seconds) is not None
    except subprocess.TimeoutExpired:
        return False


STAYS = "echo $$ > pid.$RANK; exec sleep 600"


@row("needs on each node")
def needs(drun, torchrun):
    with Scene(drun) as scene:
        expect(scene.exit_code("--standalone", script="true", env={"PATH": "/bin"}) == 0, "drun needs more than PATH")
    libraries = subprocess.run(["ldd", drun], capture_output=True, text=True, check=True).stdout
    expect(not re.search(r"python|torch", libraries), libraries)
    first = pathlib.Path(torchrun).read_text().splitlines()[0]
    expect("python" in first, first)


@row("a worker fails on one of two nodes")
def failure(drun, torchrun):
    script = "[ $RANK = 1 ] || { echo $$ > pid.$RANK; exec sleep 600; }; while [ ! -e go ]; do sleep 0.05; done; exit 9"
    for program in (drun, torchrun):
        with Scene(program) as scene:
            port = free_port()
            for node in (0, 1):
                scene.start(*scene.static(node, port), script=script)
            scene.has("pid.0")
            (scene.path / "go").touch()
            if program == drun:
                expect(is_over(scene.processes[0], 5), "drun: the other node still runs")
            else:
                expect(is_over(scene.processes[1], 60), "torchrun: the failed node still runs")
                expect(not is_over(scene.processes[0], PATIENCE) and alive(scene.pid("pid.0")), "torchrun: the other node stopped")


@row("exit code after a failure")
def exit_code(drun, torchrun):
    with Scene(drun) as scene:
        expect(scene.exit_code("--standalone", script="exit 42") == 42, "drun")
    with Scene(torchrun) as scene:
        expect(scene.exit_code("--standalone", script="exit 42") == 1, "torchrun")


@row("console output after a failure")
def report(drun, torchrun):
    script = "[ $RANK != 2 ] || { echo 'bad batch' >&2; exit 1; }; exec sleep 600"
    for program in (drun, torchrun):
        with Scene(program) as scene:
            scene.exit_code("--standalone", "--nproc-per-node=4", script=script)
            lines = scene.err().splitlines()
            has_traceback = "Traceback (most recent call last)" in scene.err()
            expect(has_traceback == (program == torchrun), scene.err())
            expect(len(lines) < 10 if program == drun else len(lines) > 40, f"{program}: {len(lines)} lines")


@row("two nodes with the same rank, or with different `--nnodes`")
def wrong_nodes(drun, torchrun):
    for program in (drun, torchrun):
        for second in (["--nnodes=3", "--node-rank=1"], ["--nnodes=2", "--node-rank=1"]):
            with Scene(program) as scene:
                port = free_port()
                scene.start(*scene.static(0, port, 3), script=STAYS)
                scene.start(*scene.static(1, port, 3), script=STAYS)
                time.sleep(8 if program == torchrun else 0.5)
                third = scene.start(*second, "--master-addr=127.0.0.1", f"--master-port={port}", script=STAYS)
                over = is_over(third, PATIENCE if program == torchrun else 10)
                if program == drun:
                    expect(over, "drun: no error")
                    expect(third.returncode in (2, 121), scene.err(2))
                else:
                    expect(not over, f"torchrun reports {second}: {scene.err(2)}")


@row("the launcher is killed with SIGKILL")
def killed(drun, torchrun):
    for program in (drun, torchrun):
        with Scene(program) as scene:
            process = scene.start("--standalone", script=STAYS)
            scene.has("pid.0")
            process.kill()
            process.wait()
            time.sleep(2)
            expect(alive(scene.pid("pid.0")) == (program == torchrun), program)


@row("under `nohup`, after a hangup")
def nohup(drun, torchrun):
    for program in (drun, torchrun):
        with Scene("nohup") as scene:
            process = scene.start(program, "--standalone", script=STAYS)
            scene.has("pid.0")
            for pid in below(process.pid):  # a terminal that closes signals its whole foreground process group
                if command_of(pid) not in ("sleep", "sh"):
                    os.kill(pid, signal.SIGHUP)
            over = is_over(process, 5)
            if not over:
                over = not alive(scene.pid("pid.0"))
            expect(over == (program == torchrun), f"{program}: {'ended' if over else 'still runs'}")


@row("standard input of the workers")
def stdin(drun, torchrun):
    for program in (drun, torchrun):
        with Scene(program) as scene:
            (scene.path / "in").write_text("text\n")
            with open(scene.path / "in") as text:
                process = subprocess.run([program, "--standalone", "--no-python", "sh", "-c", "readlink /proc/self/fd/0 > fd"],
                                         cwd=scene.path, stdin=text, capture_output=True, text=True)
            expect(process.returncode == 0, process.stderr)
            source = (scene.path / "fd").read_text().strip()
            expect(source == "/dev/null" if program == drun else source.endswith("/in"), source)


@row("ranks of 10 and above in `--tee 10:3`")
def tee(drun, torchrun):
    with Scene(drun) as scene:
        expect(scene.exit_code("--standalone", "--nproc-per-node=11", "--tee=10:3", "--log-dir=logs", script="true") == 0, scene.err())
    with Scene(torchrun) as scene:
        expect(scene.exit_code("--standalone", "--nproc-per-node=11", "--tee=10:3", "--log-dir=logs", script="true") != 0, "accepted")


@row("a node of an elastic job is lost")
def lost_node(drun, torchrun):
    script = "echo $WORLD_SIZE >> worlds.$GROUP_RANK; echo $$ > pid.$$; exec sleep 600"
    for program in (drun, torchrun):
        with Scene(program) as scene:
            port = free_port()
            conf = ["--rdzv-conf=last_call_timeout=30"] if program == drun else ["--rdzv-conf=last_call_timeout=30,join_timeout=120"]
            for _ in range(2):
                scene.start(*scene.elastic(port), *conf, script=script)
                time.sleep(1)
            scene.has("worlds.0", "worlds.1")
            hosts = [process for process in scene.processes if is_host(process, port)]
            other = next(process for process in scene.processes if process not in hosts)
            kill_session(other)
            deadline = time.monotonic() + (10 if program == drun else PATIENCE)
            while time.monotonic() < deadline and worlds(scene) == ["2", "2"]:
                time.sleep(0.1)
            expect(("1" in worlds(scene)) == (program == drun), f"{program}: worlds {worlds(scene)}")


def worlds(scene):
    return [line for path in sorted(scene.path.glob("worlds.*")) for line in path.read_text().split()]


def is_host(process, port):
    """Returns whether the process or a descendant listens on the port."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and int(words[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(f"socket:[{words[9]}]")
    for pid in below(process.pid):
        for path in pathlib.Path(f"/proc/{pid}/fd").glob("*"):
            try:
                if os.readlink(path) in inodes:
                    return True
            except OSError:
                pass
    return False


@row("the node that hosts the rendezvous is lost")
def lost_host(drun, torchrun):
    script = "echo $WORLD_SIZE >> worlds.$GROUP_RANK; echo $$ > pid.$$; exec sleep 600"
    for program in (drun, torchrun):
        with Scene(program) as scene:
            ports = [free_port() for _ in range(3)]
            endpoint = ",".join(f"127.0.0.1:{port}" for port in ports) if program == drun else f"127.0.0.1:{ports[0]}"
            for _ in range(3):
                scene.start(*scene.elastic(endpoint, "2:3"), script=script)
                time.sleep(1)
            scene.has("worlds.0", "worlds.1", "worlds.2")
            host = next(process for process in scene.processes if is_host(process, ports[0]))
            kill_session(host)
            others = [process for process in scene.processes if process is not host]
            if program == drun:
                wait_for(lambda: worlds(scene).count("2") >= 2, 30, "drun: no new round")
                expect(all(process.poll() is None for process in others), "drun ended")
            else:
                expect(all(is_over(process, 90) for process in others), "torchrun: still running")
                expect(all(process.returncode != 0 for process in others), "torchrun: succeeded")


@row("a worker that hangs")
def hang(drun, torchrun):
    with Scene(drun) as scene:
        expect(scene.exit_code("--standalone", "--hang-timeout=2", script="exec sleep 600") == 123, scene.err())
        expect("rank 0" in scene.err() and "hung" in scene.err(), scene.err())
    expect("--hang" not in help_of(torchrun), "torchrun has an option")


def help_of(program):
    return subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout


def drun_options(drun):
    for option in ("--help-all", "--help"):
        done = subprocess.run([drun, option], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout
    raise AssertionError("no help")


def only_drun(text, *options):
    """Checks a row about a feature for which torchrun has no option."""
    @row(text)
    def check(drun, torchrun):
        ours, theirs = drun_options(drun), help_of(torchrun)
        for option in options:
            expect(option in ours, f"drun has no {option}")
            expect(option not in theirs, f"torchrun has {option}")


only_drun("start on other machines", "--hosts")
only_drun("look at a running job", "drun status", "drun stacks")
only_drun("check the machines before a job", "--preflight", "drun doctor")
only_drun("lines of all nodes on one console; times; JSON", "--gather-logs", "--timestamps", "--output")
only_drun("encrypted and authenticated rendezvous", "--secret-file")


@row("health checks and metrics")
def health(drun, torchrun):
    expect("--metrics-port" in drun_options(drun), "drun has no --metrics-port")
    python = str(pathlib.Path(torchrun).with_name("python"))
    code = "from torch.distributed.elastic.agent.server.health_check_server import create_healthcheck_server as c; c(lambda: 0, 0, 1).start()"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    expect("No health check server started" in done.stderr, done.stderr)


def rows_of_readme():
    text = (ROOT / "README.md").read_text()
    table = re.search(r"(?m)^\| *\| torchrun.*\n\|[-| ]+\n((?:\|.*\n)+)", text)
    expect(table, "README.md has no table with the head | | torchrun")
    return [line.split("|")[1].strip() for line in table.group(1).splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drun", default="build/bin/drun")
    parser.add_argument("--torchrun", default=str(DEFAULT_TORCHRUN))
    parser.add_argument("rows", nargs="*")
    arguments = parser.parse_args()
    drun = str(pathlib.Path(arguments.drun).resolve())
    documented = rows_of_readme() if not arguments.rows else arguments.rows
    failures = [f"{text}: the table has no such row" for text in ROWS if not arguments.rows and text not in documented]
    for text in documented:
        check = ROWS.get(text)
        begin = time.monotonic()
        try:
            expect(check, "no check for this row")
            check(drun, arguments.torchrun)
            print(f"holds   {text} ({time.monotonic() - begin:.0f} s)", flush=True)
        except (AssertionError, SystemExit, subprocess.SubprocessError, OSError) as error:
            failures.append(f"{text}: {error}")
            print(f"FAILED  {text}: {error}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

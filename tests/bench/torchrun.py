#!/usr/bin/env python3
"""Measures drun against torchrun: start, memory, and the time from a worker's death to the end of the job.

usage: tests/bench/torchrun.py [--drun build/bin/drun] [--torchrun PATH] [--rounds N] [NAME ...]

Names: start memory death nodes report (default: all). Launchers take turns, so that both see the same
load on the machine. Figures are medians, which README.md quotes.
"""
import argparse
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

DEFAULT_TORCHRUN = pathlib.Path.home() / ".cache/drun/torch-venv/bin/torchrun"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def started(command, **options):
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True,
                            **{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options})


def kill_session(process):
    """Kills a launcher of this benchmark and the workers that it left behind."""
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == process.pid:
                os.kill(int(entry.name), signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
    process.wait()


def below(pid):
    found = [pid]
    for each in found:
        try:
            children = "".join(path.read_text() for path in pathlib.Path(f"/proc/{each}/task").glob("*/children"))
        except OSError:
            continue
        found += [int(word) for word in children.split()]
    return found


def wait_for(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"timed out after {seconds} s: {what}")
        time.sleep(0.002)


def show(title, unit, samples, digits=0):
    medians = {name: statistics.median(values) for name, values in samples.items()}
    print(title)
    for name, values in samples.items():
        print(f"  {name:<10} {medians[name]:10.{digits}f} {unit}   ({min(values):.{digits}f} to {max(values):.{digits}f}, {len(values)} runs)")
    print(f"  ratio      {medians['torchrun'] / medians['drun']:10.1f}", flush=True)


def bench_start(launchers, rounds):
    """Measures the time from the start to the exit of the command, with workers that exit at once."""
    for count in (1, 8, 64):
        samples = {name: [] for name in launchers}
        for _ in range(rounds):
            for name, program in launchers.items():
                begin = time.perf_counter()
                process = started([program, "--standalone", f"--nproc-per-node={count}", "--no-python", "true"])
                if process.wait() != 0:
                    sys.exit(f"{name}: exit code {process.returncode}")
                samples[name].append(1000 * (time.perf_counter() - begin))
        show(f"start: {count} workers of `true`, from command to exit", "ms", samples)


def memory_of(pids):
    """Returns the proportional set size in MB: shared pages are counted once."""
    total = 0
    for pid in pids:
        text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
        total += int(re.search(r"^Pss:\s+(\d+)", text, re.M).group(1))
    return total / 1024


def bench_memory(launchers, rounds):
    """Measures the memory of the launcher's own processes while eight workers run."""
    samples = {name: [] for name in launchers}
    for _ in range(min(rounds, 5)):
        for name, program in launchers.items():
            with tempfile.TemporaryDirectory() as folder:
                script = "touch up.$RANK; exec sleep 120"
                process = started([program, "--standalone", "--nproc-per-node=8", "--no-python", "sh", "-c", script], cwd=folder)
                wait_for(lambda: len(os.listdir(folder)) == 8, 120, "workers")
                wait_for(lambda: sum(command_of(pid) == "sleep" for pid in below(process.pid)) == 8, 20, "sleep")
                samples[name].append(memory_of(pid for pid in below(process.pid) if command_of(pid) != "sleep"))
                kill_session(process)
    show("memory: the launcher's processes with 8 workers", "MB", samples, 1)


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def bench_death(launchers, rounds):
    """Measures the time from the death of one of eight workers to the launcher's exit."""
    samples = {name: [] for name in launchers}
    for _ in range(rounds):
        for name, program in launchers.items():
            with tempfile.TemporaryDirectory() as folder:
                script = "touch up.$RANK; [ $RANK = 3 ] || exec sleep 120; while [ ! -e go ]; do sleep 0.01; done; date +%s%N > died; exit 9"
                process = started([program, "--standalone", "--nproc-per-node=8", "--no-python", "sh", "-c", script], cwd=folder)
                wait_for(lambda: len(os.listdir(folder)) == 8, 120, "workers")
                pathlib.Path(folder, "go").touch()
                process.wait()
                end = time.time_ns()
                samples[name].append((end - int(pathlib.Path(folder, "died").read_text())) / 1e6)
                kill_session(process)
    show("death: from the exit of one of 8 workers to the launcher's exit", "ms", samples)


def bench_nodes(launchers, rounds, patience=60):
    """Measures, with two nodes, the time from the death of a worker on one node to the end of the other node's workers."""
    print("nodes: from the exit of a worker on node 1 to the end of the worker on node 0")
    for name, program in launchers.items():
        times = []
        for _ in range(1 if name == "torchrun" else min(rounds, 5)):
            with tempfile.TemporaryDirectory() as folder:
                port = free_port()
                script = ("touch up.$RANK; if [ $RANK = 1 ]; then while [ ! -e go ]; do sleep 0.01; done; date +%s%N > died; exit 9; fi; "
                          "echo $$ > pid; exec sleep 600")
                pathlib.Path(folder, "worker.sh").write_text(script)  # torchrun would change $$ in arguments
                nodes = [started([program, "--nnodes=2", f"--node-rank={node}", "--master-addr=127.0.0.1", f"--master-port={port}",
                                  "--nproc-per-node=1", "--no-python", "sh", "worker.sh"], cwd=folder) for node in (0, 1)]
                wait_for(lambda: {"up.0", "up.1", "pid"} <= set(os.listdir(folder)), 120, "workers")
                worker = int(pathlib.Path(folder, "pid").read_text())
                pathlib.Path(folder, "go").touch()
                deadline = time.monotonic() + patience
                while pathlib.Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
                    time.sleep(0.001)
                is_over = not pathlib.Path(f"/proc/{worker}").exists()
                times.append((time.time_ns() - int(pathlib.Path(folder, "died").read_text())) / 1e6 if is_over else None)
                for process in nodes:
                    kill_session(process)
        if None in times:
            print(f"  {name:<10} still running after {patience} s")
        else:
            print(f"  {name:<10} {statistics.median(times):10.0f} ms   ({min(times):.0f} to {max(times):.0f}, {len(times)} runs)")


def bench_report(launchers, rounds):
    """Counts the console lines when one of four Python workers raises an exception."""
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder, "train.py")
        script.write_text("import os, time\nrank = int(os.environ['RANK'])\nif rank == 2:\n    raise ValueError('bad batch')\ntime.sleep(60)\n")
        print("report: lines on the console when one of 4 workers raises an exception")
        for name, program in launchers.items():
            done = subprocess.run([program, "--nproc-per-node=4", str(script)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
            print(f"  {name:<10} {len(done.stderr.splitlines()):6} lines, exit code {done.returncode}")


def main():
    benches = {"start": bench_start, "memory": bench_memory, "death": bench_death, "nodes": bench_nodes, "report": bench_report}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drun", default="build/bin/drun")
    parser.add_argument("--torchrun", default=str(DEFAULT_TORCHRUN))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("names", nargs="*", choices=[*benches, []])
    arguments = parser.parse_args()
    launchers = {"drun": str(pathlib.Path(arguments.drun).resolve()), "torchrun": arguments.torchrun}
    python = str(pathlib.Path(arguments.torchrun).with_name("python"))
    version = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    print(f"torchrun of torch {version.stdout.strip()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}", flush=True)
    for name in arguments.names or benches:
        benches[name](launchers, arguments.rounds)


if __name__ == "__main__":
    main()

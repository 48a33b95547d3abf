"""Measures operations per second of PyTorch's client with drun's store and with PyTorch's servers.

    PYTHON-WITH-TORCH tests/bench/store_torch.py BUILD_DIR [ROUNDS, 7] [OPERATIONS, 2000]

Each server is a separate process on loopback. The servers take turns in each round, so that other load on the
machine affects all of them. Medians, and their ratios to drun's, are over the rounds. Everything is measured twice,
with the client on the servers' core and on another core, because the placement changes results tenfold.
"""
import os
import statistics
import subprocess
import sys
import time
from datetime import timedelta

import torch
from torch.distributed import TCPStore

TORCH_STORE = os.path.join(os.path.dirname(__file__), "..", "interop", "torch_store.py")
HAS_LIBUV = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 4)


def start(argv, core):
    server = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    pin(server.pid, core)
    return server, int(server.stdout.readline())


def pin(pid, core):
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), {core})


def seconds(action, times):
    begin = time.perf_counter()
    for i in range(times):
        action(i)
    return time.perf_counter() - begin


def operations(store):
    keys = [f"key{i}" for i in range(100)]
    for key in keys:
        store.set(key, "x" * 100)

    def set_all(i):
        store.set("s", "x" * 100)

    def flushed(times):  # SET has no answer; measures until a later request is answered
        begin = time.perf_counter()
        for i in range(times):
            set_all(i)
        store.add("flush", 1)
        return time.perf_counter() - begin

    yield "set", flushed, 50
    yield "get", lambda n: seconds(lambda i: store.get("key7"), n), 1
    yield "add", lambda n: seconds(lambda i: store.add("n", 1), n), 1
    yield "wait", lambda n: seconds(lambda i: store.wait(["key7"]), n), 1
    if hasattr(store, "check"):
        yield "check", lambda n: seconds(lambda i: store.check(["key7"]), n), 1
    if hasattr(store, "multi_get"):
        yield "multi_get(100)", lambda n: seconds(lambda i: store.multi_get(keys), n), 0.25
    big = "x" * (1 << 20)
    yield "set+get 1 MiB", lambda n: seconds(lambda i: (store.set("big", big), store.get("big")), n), 0.02


def measure(client_core, server_core):
    build = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 2000
    kinds = {"drun": [os.path.join(build, "bin/workers/store_server")]}
    for backend in ["libuv", "poll"] if HAS_LIBUV else ["poll"]:
        kinds["torch " + backend] = [sys.executable, "-u", TORCH_STORE, "serve", backend]
    servers = {name: start(argv, server_core) for name, argv in kinds.items()}
    pin(os.getpid(), client_core)
    options = {"use_libuv": True} if HAS_LIBUV else {}
    stores = {
        name: TCPStore("127.0.0.1", port, None, False, timedelta(seconds=30), **options)
        for name, (_, port) in servers.items()
    }
    rates = {}
    for _ in range(rounds):
        runs = {name: list(operations(store)) for name, store in stores.items()}
        for at in range(len(runs["drun"])):
            for name in runs:
                what, action, share = runs[name][at]
                times = max(1, int(count * share))
                rates.setdefault(what, {}).setdefault(name, []).append(times / action(times))
    where = "the servers' core" if client_core == server_core else "another core"
    print(f"torch {torch.__version__}, one client on {where}, operations per second, median of {rounds} rounds")
    for what, by_server in rates.items():
        medians = {name: statistics.median(rounds) for name, rounds in by_server.items()}
        line = "  ".join(f"{name} {rate:10.0f}" for name, rate in medians.items())
        ratios = "  ".join(
            f"drun/{name} {statistics.median(ours / theirs for ours, theirs in zip(by_server['drun'], by_server[name])):.2f}"
            for name in medians if name != "drun")
        print(f"{what:16} {line}   {ratios}")
    for server, _ in servers.values():
        server.stdin.close()
        server.wait()


def main():
    cores = sorted(os.sched_getaffinity(0))
    measure(cores[0], cores[0])
    if len(cores) > 1:
        measure(cores[0], cores[1])


main()

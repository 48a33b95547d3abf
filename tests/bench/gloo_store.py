#!/usr/bin/env python3
"""Measures the store traffic of init_process_group("gloo") with drun's store, with and without the
two variables that drun sets (GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER, GLOO_ENABLE_STORE_V2_API).

    tests/bench/gloo_store.py DRUN PYTHON [RANKS...]     PYTHON has PyTorch; 4 8 16 ranks by default

The workers reach the store through a proxy that counts bytes. Prints a Markdown table.
"""
import os
import socket
import subprocess
import sys
import threading

VARIABLES = ("GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", "GLOO_ENABLE_STORE_V2_API")

WORKER = """
import os, torch, torch.distributed as dist
os.environ["MASTER_PORT"] = os.environ["PROXY_PORT"]
dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
assert value.item() == dist.get_world_size()
dist.destroy_process_group()
"""


class Proxy:
    def __init__(self, port):
        self.to_store = self.from_store = self.segments = 0
        self.target = port
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            store = socket.create_connection(("127.0.0.1", self.target))
            for source, sink, name in ((client, store, "to_store"), (store, client, "from_store")):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(
                    target=self.copy, args=(source, sink, name), daemon=True
                ).start()

    def copy(self, source, sink, name):
        try:
            while data := source.recv(1 << 16):
                setattr(self, name, getattr(self, name) + len(data))
                self.segments += name == "to_store"
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def measure(drun, python, ranks, value):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    proxy = Proxy(port)
    environment = dict(os.environ, PROXY_PORT=str(proxy.port), **{name: value for name in VARIABLES})
    command = [drun, "--nnodes=1", f"--nproc-per-node={ranks}", f"--master-port={port}"]
    command += ["--no-python", python, "-c", WORKER]
    subprocess.run(command, env=environment, check=True, timeout=500)
    return proxy


def main():
    drun, python = sys.argv[1:3]
    print("| ranks | variables | bytes to the store | bytes from the store | segments to the store |")
    print("|---|---|---|---|---|")
    for ranks in map(int, sys.argv[3:] or (4, 8, 16)):
        for value in "01":
            proxy = measure(drun, python, ranks, value)
            print(
                f"| {ranks} | {'on' if value == '1' else 'off'} | {proxy.to_store:,} "
                f"| {proxy.from_store:,} | {proxy.segments:,} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

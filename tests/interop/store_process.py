#!/usr/bin/env python3
"""Tests drun store as a process: PyTorch's clients, torchrun's agents, signals, and exit codes.

    store_process.py DRUN
"""
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import unittest

DRUN = os.path.abspath(sys.argv.pop(1))
CLIENT = pathlib.Path(__file__).with_name("torch_store.py")
SKIPPED = 77  # exit code of torch_store.py
LIMIT = 100


class Client:
    """A client with a few operations of TCPStore's protocol, without torch (docs/internals/wire.md)."""

    VALIDATE, SET, GET, ADD = 0, 1, 3, 4
    MAGIC = 0x3C85F7CE

    def __init__(self, port, host="127.0.0.1"):
        self.socket = socket.create_connection((host, port), timeout=LIMIT)
        self.socket.sendall(struct.pack("=BI", self.VALIDATE, self.MAGIC))

    @staticmethod
    def text(value):
        return struct.pack("=Q", len(value)) + value

    def set(self, key, value):
        self.socket.sendall(bytes([self.SET]) + self.text(key) + self.text(value))

    def get(self, key):
        self.socket.sendall(bytes([self.GET]) + self.text(key))
        (size,) = struct.unpack("=Q", self.read(8))
        return self.read(size)

    def add(self, key, amount):
        self.socket.sendall(bytes([self.ADD]) + self.text(key) + struct.pack("=q", amount))
        return struct.unpack("=q", self.read(8))[0]

    def read(self, size):
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data


class Store(unittest.TestCase):
    def start(self, *options):
        """Starts a server. Returns the process and its port."""
        process = subprocess.Popen([DRUN, "store", "--port=0", *options], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process, signal.SIGKILL)
        line = process.stderr.readline()
        found = re.search(r"port (\d+)", line)
        self.assertTrue(found, line)
        return process, int(found.group(1))

    def connect(self, port, host="127.0.0.1"):
        client = Client(port, host)
        self.addCleanup(client.socket.close)
        return client

    @staticmethod
    def end(process, number):
        if process.poll() is None:
            process.send_signal(number)
        process.communicate(timeout=LIMIT)
        return process.returncode

    def test_clients_share_what_they_store(self):
        process, port = self.start()
        first, second = self.connect(port), self.connect(port)
        first.set(b"key", b"\x00value\xff")
        self.assertEqual(first.add(b"count", 5), 5)
        self.assertEqual(second.get(b"key"), b"\x00value\xff")
        self.assertEqual(second.add(b"count", -2), 3)
        self.assertEqual(self.end(process, signal.SIGTERM), 0)

    def test_a_signal_ends_it_with_0_and_closes_connections(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            process, port = self.start("--loopback")
            client = self.connect(port)
            self.assertEqual(client.add(b"n", 1), 1)
            self.assertEqual(self.end(process, number), 0)
            with self.assertRaises((EOFError, ConnectionError)):
                client.get(b"n")
            with self.assertRaises(ConnectionRefusedError):
                self.connect(port)

    def test_loopback_is_the_only_address_with_that_option(self):
        _, port = self.start("--loopback")
        with self.assertRaises(ConnectionRefusedError):
            self.connect(port, "127.0.0.2")  # another address of this machine
        _, everywhere = self.start()
        self.assertEqual(self.connect(everywhere, "127.0.0.2").add(b"n", 1), 1)

    def test_a_client_that_exceeds_the_memory_limit_is_disconnected(self):
        _, port = self.start("--store-memory=1MiB")
        greedy = self.connect(port)
        with self.assertRaises((EOFError, ConnectionError)):
            greedy.set(b"big", b"x" * (2 << 20))
            greedy.get(b"big")
        self.assertEqual(self.connect(port).add(b"n", 1), 1)

    def test_errors_and_their_exit_codes(self):
        _, port = self.start()
        for options, code, reason in ((["--port", str(port)], 125, str(port)), (["--port=70000"], 2, "--port=70000"), (["train.py"], 2, "train.py")):
            ended = subprocess.run([DRUN, "store", *options], capture_output=True, text=True, check=False, timeout=LIMIT)
            self.assertEqual(ended.returncode, code, ended.stderr)
            self.assertIn(reason, ended.stderr)

    def torch_pythons(self):
        pythons = ["/usr/bin/python3", os.environ.get("DRUN_TORCH_PYTHON", "")]
        return [python for python in pythons if os.access(python, os.X_OK)]

    def test_pytorchs_client_uses_every_operation(self):
        _, port = self.start()
        ran = 0
        for python in self.torch_pythons():
            ended = subprocess.run([python, CLIENT, "client", str(port)], capture_output=True, text=True, check=False, timeout=LIMIT)
            if ended.returncode != SKIPPED:
                ran += 1
                self.assertEqual((ended.returncode, ended.stdout.splitlines()[-1]), (0, "done"), ended.stdout + ended.stderr)
        if not ran:
            self.skipTest("DRUN_TORCH_PYTHON names no Python with a current torch")

    def test_torchruns_agents_meet_in_it(self):
        python = os.environ.get("DRUN_TORCH_PYTHON", "")
        if python not in self.torch_pythons():
            self.skipTest("DRUN_TORCH_PYTHON names no Python with a current torch")
        _, port = self.start()
        words = [python, "-m", "torch.distributed.run", "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
                 "--rdzv-conf=is_host=0", "--rdzv-id=j", "--local-addr=127.0.0.1", "--no-python", "sh", "-c", "echo rank $RANK of $WORLD_SIZE"]
        agents = [subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in (0, 1)]
        for agent in agents:
            self.addCleanup(self.end, agent, signal.SIGKILL)
        said = [agent.communicate(timeout=LIMIT) for agent in agents]
        self.assertEqual([agent.returncode for agent in agents], [0, 0], said)
        self.assertEqual(sorted(out for out, _ in said), ["rank 0 of 2\n", "rank 1 of 2\n"])


def main():
    result = unittest.main(exit=False).result
    for _, reason in result.skipped:
        print(f"skipped: {reason}")
    sys.exit(not result.wasSuccessful())


main()

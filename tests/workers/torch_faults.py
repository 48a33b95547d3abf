"""A PyTorch job on CPUs in which one rank has a fault after some steps.

    torch_faults.py FAULT [RANK [STEP [SECONDS]]]          (1, 1, 20: the timeout of collectives)

The faults are below. Without a fault: "quiet", three phases of SECONDS in each of which one rank sleeps.
"""
import datetime
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time

fault = sys.argv[1]
faulty, step, seconds = (list(map(float, sys.argv[2:5])) + [1, 1, 20][len(sys.argv) - 2:])[:3]
if fault == "import" and int(os.environ["RANK"]) == int(faulty):
    import module_that_does_not_exist  # noqa: F401
if fault == "argument" and int(os.environ["RANK"]) == int(faulty):
    import argparse
    argparse.ArgumentParser(prog="train.py").parse_args(["--lrr=1"])
if fault == "file" and int(os.environ["RANK"]) == int(faulty):
    open("/no/such/data.bin")

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    """One that fails in the item after those of the first steps."""

    def __init__(self, fault):
        self.fault = fault
        self.has_come = multiprocessing.Event()  # the item before the one that fails

    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index == 4 + step and self.fault == "loader":
            self.has_come.wait()  # the rank waits for data, not for a connection to this process
            os.kill(os.getpid(), signal.SIGKILL)
        if index == 4 + step and self.fault in ("loader-stall", "loader-timeout"):
            time.sleep(3600)
        return torch.ones(4)


def fill_memory():
    parts = []
    while True:
        parts.append(b"x" * (8 << 20))
        time.sleep(0.002)


def cut_connections():
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            connection = socket.socket(fileno=os.dup(fd))
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                connection.getpeername()
                connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def wait_for_own_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def begin_fault():
    if fault == "exit":
        os._exit(7)
    elif fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.startswith("signal-"):
        signal.raise_signal(int(fault[7:]))
    elif fault == "exception":
        raise ValueError("the loss is not a number")
    elif fault == "memory":
        bytearray(1 << 50)
    elif fault == "allocator":
        torch.ones(1 << 45)
    elif fault == "oom":
        fill_memory()
    elif fault == "desync":
        dist.broadcast(torch.ones(4), 0)
    elif fault == "operation":
        dist.all_gather([torch.ones(4) for _ in range(dist.get_world_size())], torch.ones(4))
    elif fault == "shape":
        dist.all_reduce(torch.ones(300_000))
    elif fault == "skip":
        dist.barrier()
    elif fault == "sleep":
        time.sleep(3600)
    elif fault == "lock":
        wait_for_own_lock()
    elif fault == "stop":
        signal.raise_signal(signal.SIGSTOP)
    elif fault == "cut":
        cut_connections()
    elif fault == "refused":
        socket.create_connection(("127.0.0.1", 1))


dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60 if fault == "quiet" else seconds))
is_faulty = dist.get_rank() == int(faulty)
for _ in range(int(step)):
    dist.all_reduce(torch.ones(4))
if fault == "quiet":
    for phase in range(3):
        print("phase", phase, flush=True)  # what a rank computes between two waits may be too little to be seen
        if dist.get_rank() == (int(faulty) + phase) % dist.get_world_size():
            time.sleep(seconds)
        dist.all_reduce(torch.ones(4))
    sys.exit()
if fault.startswith("loader"):
    timeout = 3 if fault == "loader-timeout" else 0
    images = Images(fault if is_faulty else "")
    for number, item in enumerate(DataLoader(images, num_workers=1, timeout=timeout)):
        if number == 3 + step:
            images.has_come.set()
        dist.all_reduce(item)
elif is_faulty:
    begin_fault()
dist.all_reduce(torch.ones(4))
dist.barrier()

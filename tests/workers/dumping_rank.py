"""dumping_rank.py SECONDS: rank 0 prints, rank 1 hangs for SECONDS. Like PyTorch's ProcessGroupNCCL,
each reads a pipe for requests of the Flight Recorder's dump, logs each request, uses 0.3 s of CPU
time, and writes the dump."""

import os
import pickle
import sys
import threading
import time

RANK = int(os.environ["RANK"])
PIPE = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + f"{RANK}.pipe"
FILE = os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(RANK)


def call(number, state):
    return {
        "collective_seq_id": number,
        "profiling_name": "nccl:all_reduce",
        "process_group": ("0", "default_pg"),
        "input_sizes": [[1000]],
        "output_sizes": [[1000]],
        "input_dtypes": ["Float"],
        "state": state,
        "is_p2p": False,
        "frames": [],
    }


def answer_requests():
    requests = os.open(PIPE, os.O_RDWR)
    while os.read(requests, 1):
        sys.stderr.write(
            f"[rank{RANK}]:[E1127 07:18:45.983086335 ProcessGroupNCCL.cpp:1628] [PG ID 0 PG GUID 0(default_pg) "
            f"Rank {RANK}] ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1, only active "
            "collectives: 0\n"
        )
        sys.stderr.flush()
        end = time.thread_time() + 0.3
        while time.thread_time() < end:
            pass
        entries = [call(20, "completed")] + ([call(21, "started")] if RANK == 0 else [])
        with open(FILE, "wb") as file:
            pickle.dump({"version": "2.9", "entries": entries}, file, protocol=2)


os.mkfifo(PIPE)
threading.Thread(target=answer_requests, daemon=True).start()
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    if RANK == 0:
        print("step", flush=True)
    time.sleep(0.3 if RANK == 0 else end - time.monotonic())

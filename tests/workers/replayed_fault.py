"""A rank of a job that failed on GPUs: prints the recorded text of its part and ends as recorded.

    replayed_fault.py RECORDS NUMBER RANK LEAD

RECORDS is tests/bench/gpu_faults.json, NUMBER one of its faults, RANK the faulty one. The other ranks print theirs LEAD seconds before it
(negative: after it). With REPLAY_KERNEL_LOG, the faulty rank appends the fault's lines of the kernel log to that file.
"""
import json
import os
import re
import resource
import signal
import sys
import time

STEP = 0.2  # seconds; a loaded machine needs some


def lines_of(text, rank):
    for line in text:
        frames = re.fullmatch(r"@FRAMES (\d+)@", line)
        for number in range(int(frames[1]) if frames else 0):
            yield f"frame #{number}: c10::Error::Error(c10::SourceLocation, std::string) + 0x57 (0x7a71e4e84617 in torch/lib/libc10.so)"
        if not frames:
            yield line.replace("@RANK@", str(rank)).replace("@PID@", str(os.getpid()))


def main():
    records, number, faulty, lead = sys.argv[1:]
    with open(records) as file:
        data = json.load(file)
    fault, rank, lead = data["faults"][int(number)], int(os.environ["RANK"]), float(lead)
    is_faulty = rank == int(faulty)
    part = fault if is_faulty or fault["peers"] == "same" else data["peers"][fault["peers"]]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    log = os.environ.get("REPLAY_KERNEL_LOG")
    open(f"ready{rank}", "w").close()  # all nodes share the directory
    while not all(os.path.exists(f"ready{each}") for each in range(int(os.environ["WORLD_SIZE"]))):
        time.sleep(0.02)
    time.sleep(STEP)
    if is_faulty and log:
        with open(log, "a") as file:
            for line in lines_of(fault.get("kernel", []), rank):
                print(f"3,1,1,-;{line}", file=file, flush=True)
    time.sleep(max(0, lead if is_faulty else -lead) + (STEP if fault["end"] == "hang" else 0))
    text = "".join(line + "\n" for line in lines_of(part["text"], rank))
    os.write(2, text.encode())
    how, _, value = part["end"].partition(" ")
    if how == "exit":
        sys.exit(int(value))
    if how == "signal":
        os.kill(os.getpid(), int(value))
    signal.pause() if how == "hang" else None


main()

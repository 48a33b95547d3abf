#!/usr/bin/env python3
"""Checks the direction of #includes: a source may include its own folder and the folders before it in LAYERS.
Also fails for a folder that is not listed, and for a listed folder without sources."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# From bottom to top. worker_lib is linked into users' programs, so of the rest of drun it may include only
# FOR_WORKERS.
LAYERS = """
worker_lib/include/drun
rendezvous/base rendezvous/net rendezvous/tls rendezvous/job rendezvous/protocol rendezvous/ranks rendezvous/store
rendezvous/leader rendezvous/coordinator rendezvous/server rendezvous/member
worker_lib/base worker_lib/math worker_lib/algorithms worker_lib/mesh worker_lib/shm worker_lib/tcp worker_lib/ucx worker_lib/gloo worker_lib/nccl
worker_lib/mpi worker_lib/node worker_lib/store worker_lib/start worker_lib/core worker_lib/tools/perf
worker_lib/tools/probe worker_lib/examples
agent agent/spawn agent/process agent/preload agent/output agent/stacks agent/nccl_ras agent/diagnosis agent/hang agent/speed agent/status agent/http agent/workers
agent/supervise
launcher/base launcher/engines launcher/facts launcher/placement launcher/cli launcher/report
launcher/plan launcher/hosts launcher/remote launcher/commands launcher
""".split()
PARTS = ("rendezvous", "agent", "launcher", "worker_lib")
FOR_WORKERS = ("rendezvous/base", "rendezvous/net", "rendezvous/tls", "rendezvous/job", "rendezvous/store")


def folder_of(include):
    if include.startswith("drun/"):
        return "worker_lib/include/drun"
    folder = str(pathlib.PurePath(include).parent)
    return folder if folder.split("/")[0] in PARTS else None


def main():
    rank = {folder: place for place, folder in enumerate(LAYERS)}
    faults = []
    seen = set()
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*")):
            if path.suffix not in (".h", ".cc", ".cu"):
                continue
            name = path.relative_to(ROOT)
            folder = str(name.parent)
            seen.add(folder)
            if folder not in rank:
                faults.append(f"{name}: the folder {folder} is not in the list of layers")
                continue
            for include in re.findall(r'^\s*#include "([^"]+)"', path.read_text(), re.M):
                below = folder_of(include)
                if below is None:
                    continue
                if below not in rank or rank[below] > rank[folder]:
                    faults.append(f"{name} includes {include}, which is above {folder}")
                elif part == "worker_lib" and below.startswith("rendezvous") and below not in FOR_WORKERS:
                    faults.append(f"{name} includes {include}, which is not for workers")
    faults += [f"{folder} is in the list of layers and has no sources" for folder in LAYERS if folder not in seen]
    print("\n".join(faults) or f"{len(seen)} folders, no include points back up")
    return 1 if faults or not seen else 0


sys.exit(main())

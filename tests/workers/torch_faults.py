"""A PyTorch job on CPUs in which rank 1 has the fault that the first argument names."""
import datetime
import os
import signal
import sys

fault = sys.argv[1]
if fault == "import":
    import module_that_does_not_exist  # noqa: F401

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, dies):
        self.dies = dies

    def __len__(self):
        return 64

    def __getitem__(self, index):
        if self.dies and index == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.ones(4)


dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
is_faulty = dist.get_rank() == 1
dist.all_reduce(torch.ones(4))
if fault == "loader":
    for images in DataLoader(Images(is_faulty), num_workers=1):
        dist.all_reduce(images)
elif is_faulty and fault == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
elif is_faulty and fault == "memory":
    bytearray(1 << 50)
elif is_faulty and fault == "allocator":
    torch.ones(1 << 45)
elif is_faulty and fault == "desync":
    dist.broadcast(torch.ones(4), 0)
dist.all_reduce(torch.ones(4))
dist.barrier()

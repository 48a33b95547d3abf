"""An ordinary PyTorch program without any use of drun. If FAIL_RANK is set, that rank fails in the first round."""
import os
import sys

import torch
import torch.distributed as dist

init_method = sys.argv[1] if len(sys.argv) > 1 else "env://"
if init_method.startswith("tcp://"):
    dist.init_process_group("gloo", init_method=init_method, rank=int(os.environ["RANK"]),
                            world_size=int(os.environ["WORLD_SIZE"]))
else:
    dist.init_process_group("gloo", init_method=init_method)
rank, size = dist.get_rank(), dist.get_world_size()

values = torch.full((1000,), float(rank + 1))
dist.all_reduce(values)
expected = size * (size + 1) / 2
if not bool((values == expected).all()):
    sys.exit(f"rank {rank}: got {values[0].item()}, expected {expected}")

restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if restarts == 0 and os.environ.get("FAIL_RANK") == str(rank):
    os._exit(7)
dist.barrier()
print(f"rank {rank} of {size} restarts {restarts} sum {values[0].item():g}", flush=True)
dist.destroy_process_group()

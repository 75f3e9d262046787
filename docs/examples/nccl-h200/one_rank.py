"""A world of one rank: NCCL finds the topology out, and one all-reduce runs."""

import torch
import torch.distributed as world

print("torch", torch.__version__, "NCCL", torch.cuda.nccl.version(), flush=True)
world.init_process_group(
    "nccl", init_method="tcp://127.0.0.1:29511", rank=0, world_size=1, device_id=torch.device("cuda:0")
)
given = torch.arange(1024.0, device="cuda")
summed = given.clone()
world.all_reduce(summed)
torch.cuda.synchronize()
print("all-reduce of one rank is the same:", bool((given == summed).all()), flush=True)
world.destroy_process_group()

"""A world with a rank for each GPU: NCCL finds the topology out, and one all-reduce runs."""

import torch
import torch.distributed as world
import torch.multiprocessing as processes


def rank(number, count):
    """What one rank does; every rank ends with the sum of all."""
    torch.cuda.set_device(number)
    device = torch.device("cuda", number)
    world.init_process_group(
        "nccl", init_method="tcp://127.0.0.1:29511", rank=number, world_size=count, device_id=device
    )
    given = torch.arange(1024.0, device=device)
    summed = given.clone()
    world.all_reduce(summed)
    torch.cuda.synchronize()
    print(f"rank {number} of {count}: the sum is that of all:", bool((given * count == summed).all()), flush=True)
    world.destroy_process_group()


if __name__ == "__main__":
    print("torch", torch.__version__, "NCCL", torch.cuda.nccl.version(), flush=True)
    processes.spawn(rank, (torch.cuda.device_count(),), torch.cuda.device_count())

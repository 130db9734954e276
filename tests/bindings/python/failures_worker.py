"""A rank that fails, is interrupted, or forks. Its job is started by failures_test."""
import os
import signal
import sys
import time

import torch
import torch.distributed as dist


def killed():
    """Rank 1 kills itself in the midst; each other rank says when it knew."""
    for step in range(1000):
        if step == 5 and dist.get_rank() == 1:
            print(f"killed at {time.time()}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            dist.all_reduce(torch.ones(1000))
        except dist.DistBackendError as error:
            print(f"rank {dist.get_rank()} knew at {time.time()}: {error.code}: {error}", flush=True)
            os._exit(3)


def interrupted():
    """All ranks wait for a message that does not come."""
    print(f"rank {dist.get_rank()} waits", flush=True)
    try:
        dist.recv(torch.empty(1), (dist.get_rank() + 1) % dist.get_world_size())
    except KeyboardInterrupt:
        print(f"rank {dist.get_rank()} was interrupted", flush=True)
        raise


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.tensor([float(index)])


def forked():
    """Workers of a DataLoader are forked while a group is there, and while a future has a thread of its own."""
    dist.all_reduce(torch.ones(100000), async_op=True).get_future().then(lambda future: None).wait()
    total = torch.zeros(1)
    for _ in range(2):
        for batch in torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2):
            dist.all_reduce(batch)
            total += batch.sum()
    assert total.item() == 2 * dist.get_world_size() * 63 * 64 / 2, total
    # A child that drops the group and ends as Python does.
    child = os.fork()
    if child == 0:
        dist.distributed_c10d._world.pg_map.clear()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {dist.get_rank() if dist.is_initialized() else os.environ['RANK']} is done", flush=True)


dist.init_process_group("kolo")
{"killed": killed, "interrupted": interrupted, "forked": forked}[sys.argv[1]]()

#!/usr/bin/env python3
"""The smallest whole script: 128 samples, a linear model, DistributedDataParallel on kolo.

    kolo-run -np 2 python examples/python/minimal.py
    torchrun --nproc-per-node 2 examples/python/minimal.py
    mpirun -np 2 python examples/python/minimal.py
    srun --ntasks 2 python examples/python/minimal.py

torchrun and kolo-run set RANK, MASTER_ADDR and their like, which torch reads (env://). mpirun and srun
do not: there kolo finds the ranks by what has started them (kolo://).
"""
import os

import kolo.c10d  # noqa: F401  for kolo://; env:// needs no import
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

SAMPLES, FEATURES, EPOCHS, GLOBAL_BATCH = 128, 10, 20, 16


def line() -> TensorDataset:
    """Samples of a linear function; all ranks make the same ones."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, FEATURES, generator=generator)
    return TensorDataset(inputs, inputs @ torch.arange(1.0, FEATURES + 1).unsqueeze(1) + 3)


def main() -> None:
    dist.init_process_group("kolo", init_method="env://" if "MASTER_ADDR" in os.environ else "kolo://")
    rank, size = dist.get_rank(), dist.get_world_size()
    data = line()
    sampler = DistributedSampler(data)  # this rank's 128 / size samples
    loader = DataLoader(data, batch_size=max(1, GLOBAL_BATCH // size), sampler=sampler)
    model = DistributedDataParallel(torch.nn.Linear(FEATURES, 1))  # all start as rank 0 does
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for epoch in range(1, EPOCHS + 1):
        sampler.set_epoch(epoch)  # another order each time
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()  # gradients are averages over ranks when it returns
            optimizer.step()
    total = loss.detach()
    dist.all_reduce(total, dist.ReduceOp.AVG)
    if rank == 0:
        print(f"{size} ranks, {len(sampler)} samples each: loss {total.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

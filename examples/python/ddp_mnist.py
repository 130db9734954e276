#!/usr/bin/env python3
"""MNIST digits by DistributedDataParallel, with kolo as the backend of torch.distributed.

    kolo-run -np 2 python examples/python/ddp_mnist.py
    torchrun --nproc-per-node 2 examples/python/ddp_mnist.py
    mpirun -np 2 python examples/python/ddp_mnist.py --init-method kolo://

The lines marked "distributed:" are all that several ranks change in a script for one. The digits are
those of tools/setup (build/data/mnist). Rank 0 prints the loss of each epoch and the accuracy on the
test digits, of which each rank judges its share.
"""
import argparse
import pathlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

MEAN, DEVIATION = 0.1307, 0.3081  # of MNIST's pixels
HEADER = {"images": 16, "labels": 8}  # bytes in front of an IDX file's data


def digits(folder: pathlib.Path, which: str) -> TensorDataset:
    """The digits in `folder`: "train" or "t10k"."""
    images, labels = (torch.frombuffer(bytearray((folder / f"{which}-{what}-idx{dimensions}-ubyte").read_bytes()),
                                       dtype=torch.uint8, offset=HEADER[what])
                      for what, dimensions in (("images", 3), ("labels", 1)))
    return TensorDataset((images.view(-1, 1, 28, 28) / 255.0 - MEAN) / DEVIATION, labels.long())


class Network(nn.Module):
    """Two convolutions and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
                                      nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.classes = nn.Sequential(nn.Linear(32 * 5 * 5, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, images: Tensor) -> Tensor:
        return self.classes(self.features(images))


def train(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer) -> float:
    """One epoch; the mean loss over all ranks."""
    model.train()
    total = torch.zeros(2)
    for images, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total += torch.tensor([loss.item() * len(labels), len(labels)])
    dist.all_reduce(total)  # distributed: over the ranks' shares
    return (total[0] / total[1]).item()


@torch.no_grad()
def evaluate(model: nn.Module, test: TensorDataset) -> tuple[int, int]:
    """How many test digits are right, and how many there are."""
    model.eval()
    share = Subset(test, range(dist.get_rank(), len(test), dist.get_world_size()))  # distributed: without padding
    counts = torch.zeros(2, dtype=torch.int64)
    for images, labels in DataLoader(share, batch_size=250):
        counts += torch.tensor([(model(images).argmax(1) == labels).sum().item(), len(labels)])
    dist.all_reduce(counts)
    return int(counts[0]), int(counts[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("build/data/mnist"))
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--global-batch", type=int, default=64)
    parser.add_argument("--init-method", default="env://", help="how ranks meet: env://, kolo://, …")
    options = parser.parse_args()

    if options.init_method == "kolo://":
        import kolo.c10d  # noqa: F401
    dist.init_process_group("kolo", init_method=options.init_method)  # distributed: finds the other ranks
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)

    data = digits(options.data, "train")
    sampler = DistributedSampler(data)  # distributed: this rank's share
    loader = DataLoader(data, batch_size=max(1, options.global_batch // size), sampler=sampler)
    model = DistributedDataParallel(Network())  # distributed: averages gradients while backward runs
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    for epoch in range(1, options.epochs + 1):
        sampler.set_epoch(epoch)  # distributed: another order
        loss = train(model, loader, optimizer)
        if rank == 0:
            print(f"Epoch {epoch}: loss {loss:.3f}", flush=True)
    right, count = evaluate(model, digits(options.data, "t10k"))
    if rank == 0:
        print(f"Accuracy on {count} digits: {100 * right / count:.1f} %", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

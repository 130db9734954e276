#!/usr/bin/env python3
"""A Horovod script whose import line is kolo's: the network of PyTorch's MNIST example.

  kolo-run -np 2 python examples/python/horovod_mnist.py

The digits are where tools/setup puts them, or in the folder of --data, as MNIST's four IDX files.
"""
import argparse
import pathlib

import kolo.torch as hvd  # was: import horovod.torch as hvd
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

DATA = pathlib.Path(__file__).resolve().parents[2] / "build" / "data" / "mnist"


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv1(images))
        x = F.relu(self.conv2(x))
        x = F.dropout(F.max_pool2d(x, 2), 0.25, self.training)
        x = F.relu(self.fc1(x.flatten(1)))
        return F.log_softmax(self.fc2(F.dropout(x, 0.5, self.training)), 1)


def digits(folder: pathlib.Path, kind: str) -> TensorDataset:
    images = torch.frombuffer(bytearray((folder / f"{kind}-images-idx3-ubyte").read_bytes()), dtype=torch.uint8)
    labels = torch.frombuffer(bytearray((folder / f"{kind}-labels-idx1-ubyte").read_bytes()), dtype=torch.uint8)
    pixels = images[16:].view(-1, 1, 28, 28).float() / 255
    return TensorDataset((pixels - 0.1307) / 0.3081, labels[8:].long())


def average(value: float, name: str) -> float:
    """Of all ranks."""
    return hvd.allreduce(torch.tensor(value), name=name).item()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader, device: torch.device) -> float:
    model.train()
    losses = []
    for images, labels in loader:
        optimizer.zero_grad()
        loss = F.nll_loss(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return average(sum(losses) / len(losses), "loss")


def evaluate(model: nn.Module, loader: DataLoader, device: torch.device) -> float:
    model.eval()
    right = seen = 0
    with torch.no_grad():
        for images, labels in loader:
            right += (model(images.to(device)).argmax(1) == labels.to(device)).sum().item()
            seen += len(labels)
    return average(right / seen, "accuracy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, default=DATA)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=128, help="images of all ranks")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients in half precision")
    options = parser.parse_args()

    hvd.init()
    torch.manual_seed(options.seed)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
        device = torch.device("cuda")

    training, testing = digits(options.data, "train"), digits(options.data, "t10k")
    sampler = DistributedSampler(training, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(training, batch_size=options.batch_size // hvd.size(), sampler=sampler)
    testing_loader = DataLoader(testing, batch_size=200,
                                sampler=DistributedSampler(testing, num_replicas=hvd.size(), rank=hvd.rank()))

    model = Network().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none)

    for epoch in range(1, options.epochs + 1):
        sampler.set_epoch(epoch)
        loss = train(model, optimizer, loader, device)
        accuracy = evaluate(model, testing_loader, device)
        if hvd.rank() == 0:
            print(f"epoch {epoch}: loss {loss:.4f}, accuracy {100 * accuracy:.2f} %", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()

"""The digits training of examples/mnist by PyTorch's DistributedDataParallel over gloo, for
tools/bench training: the same network, optimizer, batches a rank and order of work. One process a
rank; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say which. Prints rank 0's images/s an epoch, of
all ranks together, as JSON."""
import argparse
import json
import pathlib
import time

import torch
import torch.distributed
from torch import nn
from torch.nn import functional


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, images):
        x = torch.relu(self.conv1(images))
        x = torch.relu(self.conv2(x))
        x = functional.dropout(functional.max_pool2d(x, 2), 0.25, self.training)
        x = torch.relu(self.fc1(x.flatten(1)))
        x = functional.dropout(x, 0.5, self.training)
        return functional.log_softmax(self.fc2(x), 1)


def read_idx(path):
    content = path.read_bytes()
    dimensions = content[3]
    shape = [int.from_bytes(content[4 + 4 * i:8 + 4 * i], "big") for i in range(dimensions)]
    return torch.frombuffer(bytearray(content[4 + 4 * dimensions:]), dtype=torch.uint8).reshape(shape)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder of the IDX files")
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--batch-size", type=int, default=64, help="images a rank and step (64)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    torch.distributed.init_process_group("gloo")
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    images = read_idx(options.data / "train-images-idx3-ubyte").unsqueeze(1)
    labels = read_idx(options.data / "train-labels-idx1-ubyte").long()
    network = nn.parallel.DistributedDataParallel(Network(), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3)
    global_batch = options.batch_size * size
    rates = []
    for epoch in range(options.epochs):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))
        steps = len(labels) // global_batch
        started = time.perf_counter()
        for step in range(steps):
            begin = step * global_batch + rank * options.batch_size
            share = order[begin:begin + options.batch_size]
            batch = images[share].float().div(255).sub(0.1307).div(0.3081)
            optimizer.zero_grad()
            loss = functional.nll_loss(network(batch), labels[share])
            loss.backward()
            loss.item()
            optimizer.step()
        rates.append(steps * global_batch / (time.perf_counter() - started))
    if rank == 0:
        print(json.dumps(rates))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

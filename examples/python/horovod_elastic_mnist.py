#!/usr/bin/env python3
"""horovod_mnist.py, which goes on when ranks are lost, and takes new ones in.

  kolo-run -np 2 --min-np 1 --restarts 1 python examples/python/horovod_elastic_mnist.py
"""
import argparse
import pathlib

import kolo.torch as hvd  # was: import horovod.torch as hvd
import torch
import torch.nn.functional as F
from horovod_mnist import DATA, Network, digits, evaluate
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, default=DATA)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64, help="images of a rank")
    parser.add_argument("--lr", type=float, default=5e-4, help="for each rank")
    options = parser.parse_args()

    # Up to train(), a process that comes later is alone: what depends on the ranks is made within it.
    hvd.init()
    torch.manual_seed(1)
    device = torch.device("cpu")
    training, testing = digits(options.data, "train"), digits(options.data, "t10k")
    sampler = hvd.elastic.ElasticSampler(training)
    loader = DataLoader(training, batch_size=options.batch_size, sampler=sampler)
    model = Network()
    optimizer = hvd.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=options.lr * hvd.size()),
                                         named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=1)

    def adapt_learning_rate() -> None:
        for group in optimizer.param_groups:
            group["lr"] = options.lr * hvd.size()

    state.register_reset_callbacks([adapt_learning_rate])

    @hvd.elastic.run
    def train(state: hvd.elastic.TorchState) -> None:  # called anew in each world
        if hvd.rank() == 0:
            print(f"{hvd.size()} ranks go on in epoch {state.epoch}, {len(sampler)} images each", flush=True)
        testing_loader = DataLoader(testing, batch_size=200,
                                    sampler=DistributedSampler(testing, num_replicas=hvd.size(), rank=hvd.rank()))
        while state.epoch <= options.epochs:
            model.train()
            for number, (images, labels) in enumerate(loader):
                optimizer.zero_grad()
                F.nll_loss(model(images), labels).backward()
                optimizer.step()
                sampler.record_batch(number, options.batch_size)
                state.commit()
            accuracy = evaluate(model, testing_loader, device)
            if hvd.rank() == 0:
                print(f"epoch {state.epoch}: accuracy {100 * accuracy:.2f} %", flush=True)
            state.epoch += 1
            sampler.set_epoch(state.epoch)
            state.commit()

    train(state)
    hvd.shutdown()


if __name__ == "__main__":
    main()

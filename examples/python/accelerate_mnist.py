#!/usr/bin/env python3
"""MNIST digits by HuggingFace Accelerate, with kolo as the backend of torch.distributed.

    kolo-run -np 2 accelerate launch --config_file examples/python/accelerate.yaml \\
        examples/python/accelerate_mnist.py
    torchrun --nproc-per-node 2 examples/python/accelerate_mnist.py

On the CPU Accelerate takes no other backend than gloo and MPI for its own; but it uses the group that
is there. So the script begins the group, the one line that names kolo. The network and the digits are
those of ddp_mnist.py.
"""
import argparse
import os
import pathlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from accelerate import Accelerator
from ddp_mnist import Network, digits
from torch.utils.data import DataLoader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("build/data/mnist"))
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--global-batch", type=int, default=64)
    options = parser.parse_args()

    if "RANK" in os.environ:
        dist.init_process_group("kolo")  # kolo, in place of what Accelerate would choose
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(1)

    data, test = digits(options.data, "train"), digits(options.data, "t10k")
    batch = max(1, options.global_batch // accelerator.num_processes)
    model = Network()
    model, optimizer, loader, test_loader = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters(), 2e-3), DataLoader(data, batch_size=batch, shuffle=True),
        DataLoader(test, batch_size=250))
    for epoch in range(1, options.epochs + 1):
        model.train()
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            accelerator.backward(loss)
            optimizer.step()
        mean = accelerator.reduce(loss.detach(), "mean")
        accelerator.print(f"Epoch {epoch}: loss {mean.item():.3f}, of the last batch")

    model.eval()
    right = []
    for images, labels in test_loader:
        with torch.no_grad():
            right.append(accelerator.gather_for_metrics(model(images).argmax(1) == labels))
    answers = torch.cat(right)  # one for each digit, without those that pad the last batch
    accelerator.print(f"Accuracy on {len(answers)} digits: {100 * answers.float().mean().item():.1f} %")
    accelerator.end_training()


if __name__ == "__main__":
    main()

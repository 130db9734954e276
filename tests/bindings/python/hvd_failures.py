"""A rank that trains until something goes wrong on rank 1, and says how it learns of it."""
import os
import signal
import sys
import time

import kolo.torch as hvd
import torch


def main():
    hvd.init()
    net = torch.nn.Linear(3, 2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.1), net.named_parameters())
    begin = 0.0
    try:
        for step in range(100_000):
            if step == 20 and hvd.rank() == 1:
                if sys.argv[1] == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise KeyError("a mistake of its own")
            begin = time.monotonic()
            optimizer.zero_grad()
            net(torch.ones(2, 3)).sum().backward()
            optimizer.step()
    except hvd.HorovodInternalError as error:
        print(f"rank {hvd.rank()} after {time.monotonic() - begin:.2f} s: {error.code}: {error}", flush=True)
        raise


main()

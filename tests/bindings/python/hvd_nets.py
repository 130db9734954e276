"""What the checks of training share: a network, and how ranks and one process alone train it."""
import copy

import kolo.torch as hvd
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 3)

    def forward(self, inputs):
        return self.second(torch.tanh(self.first(inputs)))


def batch(rank, step=0):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(4, 6, generator=generator), torch.randn(4, 3, generator=generator)


def loss_of(net, rank=None, step=0):
    inputs, targets = batch(hvd.rank() if rank is None else rank, step)
    return nn.functional.mse_loss(net(inputs), targets)


def equal_nets():
    """One for kolo, one for a training of all ranks' batches in this process."""
    torch.manual_seed(7)
    net = Net()
    return net, copy.deepcopy(net)


def train_alone(net, optimizer, steps, ranks=None, begin=0, divisor=None):
    ranks = range(hvd.size()) if ranks is None else ranks
    for step in range(begin, begin + steps):
        optimizer.zero_grad()
        (sum(loss_of(net, rank, step) for rank in ranks) / (divisor or len(ranks))).backward()
        optimizer.step()


def train(net, optimizer, steps, begin=0):
    for step in range(begin, begin + steps):
        optimizer.zero_grad()
        loss_of(net, step=step).backward()
        optimizer.step()


def expect_alike(net, other, tolerance=1e-5):
    for (name, got), wanted in zip(net.named_parameters(), other.parameters(), strict=True):
        assert torch.allclose(got, wanted, atol=tolerance), f"{name}: {got} instead of {wanted}"


OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, 0.01),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, 0.01, amsgrad=True),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, 0.01),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, 0.01),
    "Adadelta": lambda parameters: torch.optim.Adadelta(parameters),
    "LBFGS": lambda parameters: torch.optim.LBFGS(parameters, line_search_fn="strong_wolfe"),
}

"""kolo.torch's DistributedOptimizer beside what torch has for a training script. A rank of a job."""
import copy
import warnings

import kolo.torch as hvd
import torch
from hvd_nets import OPTIMIZERS, equal_nets, expect_alike, loss_of, train, train_alone
from hvd_rank import expect
from torch import nn


def check_clipping():
    net, alone = equal_nets()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.5), net.named_parameters())
    other = torch.optim.SGD(alone.parameters(), 0.5)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(net, step=step).backward()
        optimizer.synchronize()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        assert norm > 0.1
        with optimizer.skip_synchronize():
            optimizer.step()
        other.zero_grad()
        (sum(loss_of(alone, rank, step) for rank in range(hvd.size())) / hvd.size()).backward()
        nn.utils.clip_grad_norm_(alone.parameters(), 0.1)
        other.step()
    expect_alike(net, alone)


def check_schedulers():
    for made_before in (True, False):
        net, alone = equal_nets()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5) if made_before else None
        optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters())
        assert "step" not in vars(optimizer), "the scheduler's, which goes round the reduction"
        scheduler = scheduler or torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        other = torch.optim.SGD(alone.parameters(), 0.1)
        beside = torch.optim.lr_scheduler.StepLR(other, 1, 0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for step in range(3):
                train(net, optimizer, 1, step)
                scheduler.step()
                train_alone(alone, other, 1, begin=step)
                beside.step()
        assert optimizer.param_groups[0]["lr"] == other.param_groups[0]["lr"] == 0.0125
        expect_alike(net, alone)


def check_hooks_and_state():
    net, _ = equal_nets()
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(net.parameters(), 0.01), net.named_parameters())
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("pre"))
    train(net, optimizer, 1)
    optimizer.load_state_dict(optimizer.state_dict())
    train(net, optimizer, 1)
    assert calls == ["pre", "pre"], calls
    copied = copy.deepcopy(optimizer.state_dict())
    assert copied["state"][0]["step"] == 2


def check_closures():
    net, alone = equal_nets()
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS["LBFGS"](net.parameters()), net.named_parameters())
    other = OPTIMIZERS["LBFGS"](alone.parameters())

    def closure():
        optimizer.zero_grad()
        loss = loss_of(net)
        loss.backward()
        return loss

    def closure_alone():
        other.zero_grad()
        loss = sum(loss_of(alone, rank) for rank in range(hvd.size())) / hvd.size()
        loss.backward()
        return loss
    for _ in range(2):
        optimizer.step(closure)
        other.step(closure_alone)
    # A line search amplifies the last bits.
    assert abs(closure().item() - loss_of(net).item()) < 1e-6
    mean = hvd.allreduce(loss_of(net).detach())
    assert abs(mean.item() - closure_alone().item()) < 0.05, (mean, closure_alone())
    for parameter in net.parameters():
        expect(hvd.allreduce(parameter.detach(), op=hvd.Max), hvd.allreduce(parameter.detach(), op=hvd.Min))


def check_more_parameters():
    net, alone = equal_nets()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.first.parameters(), 0.05), net.named_parameters())
    other = torch.optim.SGD(alone.first.parameters(), 0.05)
    train(net, optimizer, 1)
    train_alone(alone, other, 1)
    optimizer.add_param_group({"params": list(net.second.parameters())})
    other.add_param_group({"params": list(alone.second.parameters())})
    net.zero_grad()
    alone.zero_grad()
    train(net, optimizer, 2, 1)
    train_alone(alone, other, 2, begin=1)
    expect_alike(net, alone)


def check_grad_scaler():
    """The GradScaler's own calls, with gradients that are averages when backward returns."""
    net, alone = equal_nets()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.05), net.named_parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for step in range(3):
        optimizer.zero_grad()
        scaler.scale(loss_of(net, step=step)).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 100.0)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
    train_alone(alone, torch.optim.SGD(alone.parameters(), 0.05), 3)
    expect_alike(net, alone)


def check_hooks_of_gradients():
    """A hook of the user's on a parameter that the optimizer has, whenever it was registered."""
    net, alone = equal_nets()
    seen = []
    net.first.weight.register_post_accumulate_grad_hook(lambda parameter: seen.append("before"))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.05), net.named_parameters())
    net.second.weight.register_post_accumulate_grad_hook(lambda parameter: seen.append("after"))
    net.second.bias.register_hook(lambda gradient: seen.append("tensor's"))
    train(net, optimizer, 3)
    train_alone(alone, torch.optim.SGD(alone.parameters(), 0.05), 3)
    expect_alike(net, alone)
    assert sorted(set(seen)) == ["after", "before", "tensor's"], seen

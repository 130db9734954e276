"""kolo.torch's broadcasts of parameters and of an optimizer's state, and SyncBatchNorm. A rank of a job."""
import copy

import kolo.torch as hvd
import torch
from hvd_nets import OPTIMIZERS, Net, loss_of, train
from hvd_rank import expect, raises
from torch import nn


def check_broadcast_parameters():
    for root in range(hvd.size()):
        torch.manual_seed(hvd.rank())
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        net[1].running_mean.fill_(hvd.rank())
        for given in (net.state_dict(), list(net.named_parameters()), net.parameters()):
            hvd.broadcast_parameters(given, root_rank=root)
        torch.manual_seed(root)
        expect(net[0].weight.detach(), nn.Linear(3, 4).weight.detach())
        expect(net[1].running_mean, torch.full((4,), float(root)))
        assert net[0].weight.requires_grad
    raises(ValueError, lambda: hvd.broadcast_parameters(5, 0), "state_dict")
    raises(ValueError, lambda: hvd.broadcast_parameters({"a": 1}, 0), "'a'")


def check_broadcast_optimizer_state():
    for name, make in OPTIMIZERS.items():
        for begun in ("root", "others"):
            torch.manual_seed(hvd.rank())
            net = Net()
            net.second.bias.requires_grad_(False)
            optimizer = make(net.parameters())
            root = hvd.size() - 1
            if (hvd.rank() == root) == (begun == "root"):
                def closure(net=net, optimizer=optimizer):
                    optimizer.zero_grad()
                    loss = loss_of(net)
                    loss.backward()
                    return loss
                optimizer.step(closure)
            optimizer.param_groups[0]["lr"] = 0.5 + hvd.rank()
            before = copy.deepcopy(optimizer.state_dict()), [each.detach().clone() for each in net.parameters()]
            hvd.broadcast_optimizer_state(optimizer, root_rank=root)
            for parameter, old in zip(net.parameters(), before[1], strict=True):
                expect(parameter.detach(), old, "no step is taken")
            assert not net.second.bias.requires_grad
            states = hvd.allgather_object(optimizer.state_dict())
            if hvd.rank() == root:
                states.append(before[0])
            for state in states:
                assert repr(state) == repr(states[root]), f"{name}: {state} instead of {states[root]}"
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1 + hvd.rank())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    distributed = hvd.DistributedOptimizer(optimizer, net.named_parameters())
    hvd.broadcast_optimizer_state(distributed, root_rank=0)
    assert distributed.param_groups[0]["lr"] == 0.1
    train(net, distributed, 1)
    scheduler.step()
    if hvd.size() > 1:
        uneven = torch.optim.SGD(nn.Linear(2 + hvd.rank(), 1).parameters(), 0.1)
        raises(ValueError, lambda: hvd.broadcast_optimizer_state(uneven, 0), "rank 1")


def check_sync_batch_norm():
    size, rank = hvd.size(), hvd.rank()
    for shape in ((5, 3), (5, 3, 4), (5, 3, 4, 2), (5, 3, 2, 2, 2)):
        kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)]
        norm, alone = hvd.SyncBatchNorm(3), kind(3)
        inputs = torch.randn((size, *shape), generator=torch.Generator().manual_seed(1))
        own = inputs[rank].clone().requires_grad_()
        whole = inputs.flatten(0, 1).clone().requires_grad_()
        norm(own).pow(3).sum().backward()
        alone(whole).pow(3).sum().backward()
        expect(own.grad, whole.grad.view((size, *shape))[rank])
        expect(hvd.allreduce(norm.weight.grad, op=hvd.Sum), alone.weight.grad)
        for name, buffer in alone.named_buffers():
            expect(dict(norm.named_buffers())[name], buffer, name)
        expect(norm.eval()(own), alone.eval()(whole).view((size, *shape))[rank])
    cumulative, plain = hvd.SyncBatchNorm(3, momentum=None, affine=False), nn.BatchNorm1d(3, momentum=None, affine=False)
    for seed in range(3):
        inputs = torch.randn((4 * size, 3), generator=torch.Generator().manual_seed(seed))
        cumulative(inputs[4 * rank:4 * rank + 4])
        plain(inputs)
    expect(cumulative.running_mean, plain.running_mean)
    without = hvd.SyncBatchNorm(3, track_running_stats=False)
    assert without.running_mean is None
    without(torch.randn(4, 3))
    raises(ValueError, lambda: without(torch.randn(4, 2)), "3 channels")
    copy.deepcopy(without)

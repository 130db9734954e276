"""kolo.torch's DistributedOptimizer: which gradients it reduces, and how. A rank of a job."""
import warnings

import hvd_rank
import kolo.torch as hvd
import torch
from hvd_nets import OPTIMIZERS, equal_nets, expect_alike, loss_of, train, train_alone
from hvd_rank import expect, mine, raises
from torch import nn


def check_trains_like_one_process():
    for name, make in OPTIMIZERS.items():
        if name == "LBFGS":
            continue
        net, alone = equal_nets()
        optimizer = hvd.DistributedOptimizer(make(net.parameters()), named_parameters=net.named_parameters())
        assert isinstance(optimizer, getattr(torch.optim, name)) and type(optimizer).__name__ == name
        train(net, optimizer, 4)
        train_alone(alone, make(alone.parameters()), 4)
        expect_alike(net, alone)


def check_options():
    for options, divisor, tolerance in (({"op": hvd.Sum}, 1, 1e-5), ({"gradient_predivide_factor": 2.0}, None, 1e-5),
                                        ({"groups": 2}, None, 1e-5), ({"num_groups": 1}, None, 1e-5),
                                        ({"compression": hvd.Compression.fp16}, None, 2e-3),
                                        ({"compression": hvd.Compression.bf16}, None, 1e-2),
                                        ({"sparse_as_dense": True}, None, 1e-5)):
        net, alone = equal_nets()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.05), net.named_parameters(),
                                                 **options)
        train(net, optimizer, 3)
        train_alone(alone, torch.optim.SGD(alone.parameters(), 0.05), 3, divisor=divisor)
        expect_alike(net, alone, tolerance)
    net, alone = equal_nets()
    lists = [[net.first.weight, net.second.weight], [net.first.bias]]
    train(net, hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.05), net.named_parameters(), groups=lists), 3)
    train_alone(alone, torch.optim.SGD(alone.parameters(), 0.05), 3)
    expect_alike(net, alone)


def check_a_compressor_of_ones_own():
    class Halved(hvd.Compression.none):
        calls = 0

        @staticmethod
        def compress(tensor):
            Halved.calls += 1
            return (tensor / 2).to(torch.float16), tensor.dtype

        @staticmethod
        def decompress(tensor, ctx):
            return tensor.to(ctx) * 2

    net, alone = equal_nets()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.05), net.named_parameters(),
                                         compression=Halved)
    train(net, optimizer, 2)
    train_alone(alone, torch.optim.SGD(alone.parameters(), 0.05), 2)
    expect_alike(net, alone, 2e-3)
    assert Halved.calls > 0

    class Broken(Halved):
        @staticmethod
        def compress(tensor):
            if tensor.numel() > 1 and hvd.rank() == 0:
                raise KeyError("the reason")
            return tensor, None

        @staticmethod
        def decompress(tensor, ctx):
            return tensor

    net, _ = equal_nets()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.05), net.named_parameters(),
                                         compression=Broken)
    raises(RuntimeError, lambda: loss_of(net).backward(), "the reason", "rank 0")


def check_several_passes():
    net, alone = equal_nets()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.05), net.named_parameters(),
                                         backward_passes_per_step=2)
    other = torch.optim.SGD(alone.parameters(), 0.05)
    for step in range(3):
        optimizer.zero_grad()
        other.zero_grad()
        for part in range(2):
            loss_of(net, step=2 * step + part).backward()
            (sum(loss_of(alone, rank, 2 * step + part) for rank in range(hvd.size())) / hvd.size()).backward()
        optimizer.step()
        other.step()
    expect_alike(net, alone)


def check_misuse_is_named():
    net, _ = equal_nets()

    def make(**options):
        return hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.1), **options)
    twice = [("p", parameter) for parameter in net.parameters()]
    raises(ValueError, lambda: make(named_parameters=twice), "'p'")
    raises(ValueError, lambda: make(named_parameters=list(net.named_parameters())[:2]), "named parameters")
    raises(ValueError, lambda: make(named_parameters=net.parameters()), "tuples")
    raises(ValueError, lambda: make(backward_passes_per_step=0), "backward_passes_per_step")
    raises(ValueError, lambda: make(op=hvd.Sum, gradient_predivide_factor=2.0), "gradient_predivide_factor")
    raises(ValueError, lambda: make(op=hvd.Max), "max")
    raises(ValueError, lambda: make(groups=-1), "groups")
    raises(ValueError, lambda: make(groups=[["first.weight"]]), "groups")
    optimizer = make(named_parameters=net.named_parameters())
    raises(ValueError, lambda: make(named_parameters=net.named_parameters()), "another DistributedOptimizer")
    raises(ValueError, lambda: hvd.DistributedOptimizer(optimizer), "already")
    train(net, optimizer, 1)
    if hvd.size() > 1:
        uneven = nn.Linear(2 + hvd.rank(), 1)
        raises(RuntimeError, lambda: hvd.DistributedOptimizer(torch.optim.SGD(uneven.parameters(), 0.1),
                                                              uneven.named_parameters()), "weight", "rank")


def check_without_names():
    net, alone = equal_nets()
    groups = [{"params": net.first.parameters()}, {"params": net.second.parameters(), "lr": 0.01}]
    train(net, hvd.DistributedOptimizer(torch.optim.SGD(groups, 0.05)), 3)
    groups = [{"params": alone.first.parameters()}, {"params": alone.second.parameters(), "lr": 0.01}]
    train_alone(alone, torch.optim.SGD(groups, 0.05), 3)
    expect_alike(net, alone)


def check_a_parameter_that_one_rank_uses():
    """Nobody waits for ever, whichever ranks reach it."""
    used, also = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([used, also], 0.1), [("used", used), ("also", also)])
    for step in range(4):
        optimizer.zero_grad()
        loss = used.sum()
        if step % hvd.size() == hvd.rank():
            loss = loss + also.sum()
        loss.backward()
        optimizer.step()
        expect(hvd.allreduce(also.detach(), op=hvd.Max), hvd.allreduce(also.detach(), op=hvd.Min))
    expect(also.detach(), torch.full((3,), 1 - 0.4 / hvd.size() if hvd.size() < 4 else 0.9))
    expect(used.detach(), torch.full((2,), 0.6))


def check_freezing_and_thawing():
    net, alone = equal_nets()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.05), net.named_parameters())
    other = torch.optim.SGD(alone.parameters(), 0.05)
    for step, trained in enumerate((True, False, False, True, True)):
        for each in (net, alone):
            each.first.requires_grad_(trained)
        train(net, optimizer, 1, step)
        train_alone(alone, other, 1, begin=step)
        expect_alike(net, alone)
    net.first.requires_grad_(hvd.rank() == 0)
    if hvd.size() > 1:
        raises(RuntimeError, lambda: train(net, optimizer, 1), "requires_grad of parameter 'first.weight'",
               "true on rank 0")


def check_gradients_stay_in_place():
    net, alone = equal_nets()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.05), net.named_parameters())
    for step in range(3):
        optimizer.zero_grad(set_to_none=False)
        loss_of(net, step=step).backward()
        optimizer.step()
    train_alone(alone, torch.optim.SGD(alone.parameters(), 0.05), 3)
    expect_alike(net, alone)


def check_a_process_set():
    net, alone = equal_nets()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.05), net.named_parameters(),
                                         process_set=mine())
    train(net, optimizer, 3)
    train_alone(alone, torch.optim.SGD(alone.parameters(), 0.05), 3, ranks=mine().ranks)
    expect_alike(net, alone)
    net, alone = equal_nets()  # a rank outside has a plain optimizer
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.05), net.named_parameters(),
                                         process_set=hvd_rank.sets["even"])
    train(net, optimizer, 2)
    ranks = hvd_rank.sets["even"].ranks
    train_alone(alone, torch.optim.SGD(alone.parameters(), 0.05), 2,
                ranks=ranks if hvd.rank() in ranks else [hvd.rank()])
    expect_alike(net, alone)


def check_adasum():
    net, alone = equal_nets()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.05), net.named_parameters(), op=hvd.Adasum)
    before = [parameter.detach().clone() for parameter in alone.parameters()]
    train(net, optimizer, 3)
    for parameter, old in zip(net.parameters(), before, strict=True):
        assert not torch.equal(parameter, old)
        expect(hvd.allreduce(parameter.detach(), op=hvd.Max), hvd.allreduce(parameter.detach(), op=hvd.Min))


def check_sparse_gradients():
    def embedding(sparse):
        torch.manual_seed(3)
        return nn.Embedding(7, 2, sparse=sparse)
    for make, as_dense in ((torch.optim.SGD, True), (torch.optim.SparseAdam, True), (torch.optim.SGD, False),
                           (torch.optim.SparseAdam, False), (torch.optim.Adagrad, False)):
        is_sparse = make is torch.optim.SparseAdam or not as_dense
        net, alone = embedding(True), embedding(is_sparse)
        optimizer = hvd.DistributedOptimizer(make(list(net.parameters()), lr=0.1), net.named_parameters(),
                                             sparse_as_dense=as_dense)
        other = make(list(alone.parameters()), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            net(torch.tensor([hvd.rank(), 5, 5])).sum().backward()
            assert net.weight.grad.is_sparse == (not as_dense)
            optimizer.step()
            assert net.weight.grad.is_sparse == is_sparse
            other.zero_grad()
            (sum(alone(torch.tensor([rank, 5, 5])).sum() for rank in range(hvd.size())) / hvd.size()).backward()
            other.step()
        expect_alike(net, alone)
    # One rank alone has a gradient; then no rank has one; then ranks differ in kind.
    net = embedding(True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SparseAdam(list(net.parameters())), net.named_parameters())
    if hvd.rank() == 0:
        net(torch.tensor([1, 1])).sum().backward()
    optimizer.synchronize()
    expect(net.weight.grad.to_dense()[1], torch.full((2,), 2.0 / hvd.size()))
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.zero_grad()
    optimizer.step()
    assert net.weight.grad is None
    net.sparse = hvd.rank() == 0
    error = raises(hvd.HorovodInternalError, lambda: net(torch.tensor([1])).sum().backward(), "weight", "rank 0",
                   "allgather", "sparse_as_dense")
    assert error.code == "mismatch", error.code
    optimizer.zero_grad()
    net = embedding(True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.1), net.named_parameters(), groups=1)
    raises(hvd.HorovodInternalError, lambda: net(torch.tensor([1])).sum().backward(), "weight", "group", "sparse_as_dense")

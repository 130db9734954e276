"""kolo.torch's DistributedOptimizer, and what a training script needs besides. A rank of a job."""
import copy
import warnings

import hvd_rank
import kolo.torch as hvd
import torch
from hvd_rank import expect, mine, raises
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
    half = torch.float16
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
    assert half is torch.float16


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


def check_gradients_stay_in_place():
    net, alone = equal_nets()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.05), net.named_parameters())
    for step in range(3):
        optimizer.zero_grad(set_to_none=False)
        loss_of(net, step=step).backward()
        optimizer.step()
    train_alone(alone, torch.optim.SGD(alone.parameters(), 0.05), 3)
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

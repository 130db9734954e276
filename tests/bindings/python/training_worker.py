"""DistributedDataParallel on kolo, compared with one process that has all ranks' data. A rank of a job
that training_test starts."""
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

STEPS = 6
BATCH = 4


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))


def data(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(BATCH, 8, generator=generator), torch.randint(3, (BATCH,), generator=generator)


def loss_of(module, batch):
    return torch.nn.functional.cross_entropy(module(batch[0]), batch[1])


def alone(size, steps_at_once=1):
    """The parameters that one process comes to, with all ranks' data."""
    module = model()
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for step in range(STEPS):
        for rank in range(size):
            (loss_of(module, data(rank, step)) / size).backward()
        if (step + 1) % steps_at_once == 0:
            optimizer.step()
            optimizer.zero_grad()
    return [parameter.detach() for parameter in module.parameters()]


def train(ddp, steps_at_once=1):
    rank = dist.get_rank()
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
    for step in range(STEPS):
        last = (step + 1) % steps_at_once == 0
        if last:
            loss_of(ddp, data(rank, step)).backward()
            optimizer.step()
            optimizer.zero_grad()
        else:
            with ddp.no_sync():
                loss_of(ddp, data(rank, step)).backward()
    return [parameter.detach() for parameter in ddp.parameters()]


def expect_close(got, wanted, tolerance=1e-5):
    for mine, other in zip(got, wanted, strict=True):
        assert torch.allclose(mine, other, atol=tolerance), (mine - other).abs().max()


def main():
    dist.init_process_group("kolo")
    size = dist.get_world_size()
    wanted = alone(size)
    expect_close(train(DistributedDataParallel(model())), wanted)
    expect_close(train(DistributedDataParallel(model(), gradient_as_bucket_view=True, bucket_cap_mb=0.0001)), wanted)
    expect_close(train(DistributedDataParallel(model(), static_graph=True)), wanted)
    expect_close(train(DistributedDataParallel(model(), find_unused_parameters=True)), wanted)
    for hook, tolerance in ((default_hooks.allreduce_hook, 1e-5), (default_hooks.fp16_compress_hook, 1e-2)):
        ddp = DistributedDataParallel(model())
        ddp.register_comm_hook(None, hook)
        expect_close(train(ddp), wanted, tolerance)
    expect_close(train(DistributedDataParallel(model()), steps_at_once=2), alone(size, steps_at_once=2))
    dist.destroy_process_group()
    print(f"rank {dist.get_rank() if dist.is_initialized() else ''} has trained", flush=True)


main()

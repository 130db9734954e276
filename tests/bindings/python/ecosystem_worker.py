"""What torch.distributed builds upon a backend: FSDP2, DTensor, tensor and pipeline parallelism,
ZeroRedundancyOptimizer, checkpoints, local SGD. Each part compares with one process that has all ranks'
data. Ranks are forked, since importing torch takes most of the time. --backend gloo is for comparison."""
import argparse
import os
import pathlib
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import ddp_zero_hook, default_hooks, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.checkpoint import state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

STEPS = 4
BATCH = 4
WIDTH = 7  # no rank's share is as large as another's


def model(width=WIDTH):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 3))


def data(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(BATCH, 6, generator=generator), torch.randint(3, (BATCH,), generator=generator)


def loss_of(module, batch):
    return nn.functional.cross_entropy(module(batch[0]), batch[1])


def adam(parameters):
    return torch.optim.AdamW(parameters, 1e-2)


def step_alone(module, optimizer, step, size):
    optimizer.zero_grad()
    for rank in range(size):
        (loss_of(module, data(rank, step)) / size).backward()
    optimizer.step()


def alone(size, steps=STEPS):
    """The model to which one process comes with the data of all ranks."""
    module = model()
    optimizer = adam(module.parameters())
    for step in range(steps):
        step_alone(module, optimizer, step, size)
    return module


def train(module, optimizer, steps=range(STEPS), rank=None):
    for step in steps:
        optimizer.zero_grad()
        loss_of(module, data(dist.get_rank() if rank is None else rank, step)).backward()
        optimizer.step()


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def expect_equal(got, wanted, tolerance=1e-5):
    for mine, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(whole(mine).detach(), other.detach(), atol=tolerance, rtol=tolerance)


def shared_folder():
    """A folder that all ranks name alike."""
    path = [tempfile.mkdtemp(prefix="kolo-ecosystem-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(path, 0)
    return pathlib.Path(path[0])


def remove(folder):
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder)


def sharded(mesh=None):
    module = model()
    for layer in module:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(module, mesh=mesh)


def fsdp(size):
    for has_memory_of_group in (False, True):
        module = sharded()
        module.set_allocate_memory_from_process_group_for_comm(has_memory_of_group)
        train(module, adam(module.parameters()))
        expect_equal(module.parameters(), alone(size).parameters())
    if size % 2 == 0:  # replicas of shards
        module = sharded(init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("replicas", "shards")))
        train(module, adam(module.parameters()))
        expect_equal(module.parameters(), alone(size).parameters())


def fsdp_accumulates(size):
    module = sharded()
    rank = dist.get_rank()
    for step in range(STEPS):
        module.set_requires_gradient_sync(step == STEPS - 1)
        loss_of(module, data(rank, step)).backward()
    single = model()
    for step in range(STEPS):
        for each in range(size):
            (loss_of(single, data(each, step)) / size).backward()
    expect_equal([parameter.grad for parameter in module.parameters()],
                 [parameter.grad for parameter in single.parameters()])
    norm = nn.utils.clip_grad_norm_(module.parameters(), 0.1)
    expect_equal([norm], [nn.utils.clip_grad_norm_(single.parameters(), 0.1)])


def dtensor(size):
    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(2)
    left, right = torch.randn(2 * size - 1, 8), torch.randn(8, size + 1)
    places = [Replicate(), Shard(0), Shard(1)]
    for of_left in places:
        for of_right in places:
            product = distribute_tensor(left, mesh, [of_left]) @ distribute_tensor(right, mesh, [of_right])
            expect_equal([product], [left @ right])
            for target in places:
                expect_equal([product.redistribute(placements=[target])], [left @ right])
    shares = distribute_tensor(left, mesh, [Shard(1)]) @ distribute_tensor(right, mesh, [Shard(0)])
    assert shares.placements[0] == Partial(), shares.placements
    for target in places:
        expect_equal([shares.redistribute(placements=[target])], [left @ right])
    for operation in (torch.sum, torch.mean, torch.max, torch.linalg.vector_norm):
        expect_equal([operation(distribute_tensor(left, mesh, [Shard(0)]))], [operation(left)])
    noise = torch.nn.functional.dropout(distribute_tensor(torch.ones(64, 4), mesh, [Shard(0)]), 0.5)
    assert 0 < whole(noise).count_nonzero() < 256


def tensor_parallel(size):
    width = 2 * size
    single = model(width)
    train(single, adam(single.parameters()), rank=0)
    module = parallelize_module(model(width), init_device_mesh("cpu", (size,)),
                                {"0": ColwiseParallel(), "2": RowwiseParallel()})
    train(module, adam(module.parameters()), rank=0)
    expect_equal(module.parameters(), single.parameters())


def pipeline(size):
    layers = list(model().children())
    bounds = [len(layers) * rank // size for rank in range(size + 1)]
    rank = dist.get_rank()
    stage = nn.Sequential(*layers[bounds[rank]:bounds[rank + 1]])
    schedule = ScheduleGPipe(PipelineStage(stage, rank, size, torch.device("cpu")), n_microbatches=2,
                             loss_fn=nn.functional.cross_entropy)
    batch = data(0, 0)
    first, last = rank == 0, rank == size - 1
    schedule.step(*([batch[0]] if first else []), target=batch[1] if last else None)
    single = model()
    loss_of(single, batch).backward()
    mine = list(single.children())[bounds[rank]:bounds[rank + 1]]
    expect_equal([parameter.grad for parameter in stage.parameters()],
                 [parameter.grad for layer in mine for parameter in layer.parameters()])


def zero(size):
    wanted = alone(size)
    ddp = DistributedDataParallel(model())
    optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.AdamW, lr=1e-2)
    train(ddp, optimizer)
    expect_equal(ddp.parameters(), wanted.parameters())
    optimizer.consolidate_state_dict(to=0)
    if dist.get_rank() == 0:
        assert len(optimizer.state_dict()["state"]) == len(list(wanted.parameters()))
    for make in (ddp_zero_hook.hook_with_zero_step, ddp_zero_hook.hook_with_zero_step_interleaved):
        ddp = DistributedDataParallel(model())
        optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.AdamW, lr=1e-2, overlap_with_ddp=True)
        ddp.register_comm_hook(None, make(default_hooks.allreduce_hook, ddp, optimizer))
        for step in range(STEPS + 2):  # of which the first two only find the buckets
            ddp.zero_grad()
            loss_of(ddp, data(dist.get_rank(), max(step - 2, 0))).backward()
        expect_equal(ddp.parameters(), wanted.parameters())


def checkpoint(size):
    wanted = alone(size, 2 * STEPS)
    folder = shared_folder()
    first = sharded()
    optimizer = adam(first.parameters())
    train(first, optimizer)
    parts = dict(zip(("model", "optimizer"), state_dict.get_state_dict(first, optimizer), strict=True))
    dcp.save(parts, checkpoint_id=folder / "sharded")
    dcp.async_save(parts, checkpoint_id=folder / "async").result()
    for name in ("sharded", "async"):
        module = sharded()
        optimizer = adam(module.parameters())
        parts = dict(zip(("model", "optimizer"), state_dict.get_state_dict(module, optimizer), strict=True))
        dcp.load(parts, checkpoint_id=folder / name)
        state_dict.set_state_dict(module, optimizer, model_state_dict=parts["model"],
                                  optim_state_dict=parts["optimizer"])
        train(module, optimizer, range(STEPS, 2 * STEPS))
        expect_equal(module.parameters(), wanted.parameters())
    full = state_dict.StateDictOptions(full_state_dict=True, cpu_offload=True, broadcast_from_rank0=True)
    values = state_dict.get_model_state_dict(
        first, options=state_dict.StateDictOptions(full_state_dict=True, cpu_offload=True))
    assert bool(values) == (dist.get_rank() == 0)
    module = sharded()
    state_dict.set_model_state_dict(module, values, options=full)
    expect_equal(module.parameters(), alone(size).parameters())
    remove(folder)


def local_sgd(size):
    """Ranks train alone, and average their parameters every second step."""
    ddp = DistributedDataParallel(model())
    own, _ = dist.new_subgroups(group_size=1)
    state = post_localSGD_hook.PostLocalSGDState(None, own, start_localSGD_iter=0)
    ddp.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    period = 2
    averager = PeriodicModelAverager(period=period, warmup_steps=0)
    train(ddp, PostLocalSGDOptimizer(torch.optim.SGD(ddp.parameters(), 0.1), averager))
    replicas = [model() for _ in range(size)]
    for step in range(STEPS):
        for rank, replica in enumerate(replicas):
            train(replica, torch.optim.SGD(replica.parameters(), 0.1), [step], rank)
        if step % period == 0:
            for parameters in zip(*(replica.parameters() for replica in replicas), strict=True):
                average = torch.stack([parameter.detach() for parameter in parameters]).mean(0)
                for parameter in parameters:
                    parameter.data.copy_(average)
    expect_equal(ddp.parameters(), replicas[dist.get_rank()].parameters())


PARTS = {part.__name__: part for part in (
    fsdp, fsdp_accumulates, dtensor, tensor_parallel, pipeline, zero, checkpoint, local_sgd)}


def run_rank(rank, size, backend, store, parts):
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=size)
    for name in parts:
        PARTS[name](size)
        dist.barrier()
        if rank == 0:
            print(f"{size} ranks: {name} passed", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--backend", default="kolo")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for size in options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.start_processes(
                run_rank, (size, options.backend, f"{folder}/store", options.parts), size, start_method="fork")


main()

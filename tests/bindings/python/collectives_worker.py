"""Every collective of torch.distributed on the CPU, each against its definition. A rank of a job that
package_test or a launcher starts."""
import datetime
import functools
import os
import sys
import types
import warnings

import torch
import torch.distributed as dist


def mine(count=5, rank=None):
    """What a rank gives: differs from rank to rank."""
    return torch.arange(float(count)) + 10 * (dist.get_rank() if rank is None else rank)


def expect(got, wanted):
    assert torch.equal(got, wanted), f"rank {dist.get_rank()}: {got} instead of {wanted}"


def raises(kind, call, *words):
    """The text of the exception, which has these words."""
    try:
        call()
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in {error}"
        return error
    raise AssertionError(f"no {kind.__name__}")


def reductions(rank, size):
    everything = torch.stack([mine(rank=other) for other in range(size)])
    for op, wanted in ((dist.ReduceOp.SUM, everything.sum(0)), (dist.ReduceOp.PRODUCT, everything.prod(0)),
                       (dist.ReduceOp.MIN, everything.amin(0)), (dist.ReduceOp.MAX, everything.amax(0)),
                       (dist.ReduceOp.AVG, everything.sum(0) / size)):
        tensor = mine()
        dist.all_reduce(tensor, op)
        expect(tensor, wanted)
    for op, combine in ((dist.ReduceOp.BAND, torch.bitwise_and), (dist.ReduceOp.BOR, torch.bitwise_or),
                        (dist.ReduceOp.BXOR, torch.bitwise_xor)):
        for of in (lambda other: torch.tensor([-7 + other, 1 << (40 + other), 6]),
                   lambda other: torch.tensor([True, other == 0, False])):
            dist.all_reduce(tensor := of(rank), op)
            expect(tensor, functools.reduce(combine, map(of, range(size))))
    tensors = [mine(), mine(3)]
    dist.all_reduce_coalesced(tensors)
    expect(tensors[1], everything.sum(0)[:3])
    tensor = mine()
    dist.reduce(tensor, dst=size - 1)
    expect(tensor, everything.sum(0) if rank == size - 1 else mine())
    work = dist.all_reduce(tensor := mine(), async_op=True)
    then = work.get_future().then(lambda future: future.value()[0] * 2)
    work.wait()
    expect(then.wait(), everything.sum(0) * 2)
    dist.all_reduce(tensor := (torch.eye(3) if rank == 0 else torch.zeros(3, 3)).to_sparse())
    expect(tensor.to_dense(), torch.eye(3))
    inputs = [torch.full((2,), float(rank + part)) for part in range(size)]
    wanted = torch.full((2,), float(sum(other + rank for other in range(size))))
    dist.reduce_scatter(output := torch.empty(2), inputs)
    expect(output, wanted)
    dist.reduce_scatter_tensor(output := torch.empty(2), torch.cat(inputs))
    expect(output, wanted)


def gathers(rank, size):
    outputs = [torch.empty(5) for _ in range(size)]
    dist.all_gather(outputs, mine())
    for other in range(size):
        expect(outputs[other], mine(rank=other))
    outputs = [torch.empty(1 + other) for other in range(size)]
    dist.all_gather(outputs, mine(1 + rank))
    for other in range(size):
        expect(outputs[other], mine(1 + other, other))
    dist.all_gather_into_tensor(output := torch.empty(size * 5), mine())
    expect(output, torch.cat([mine(rank=other) for other in range(size)]))
    lists = [[torch.empty(5), torch.empty(2)] for _ in range(size)]
    dist.all_gather_coalesced(lists, [mine(), mine(2)])
    for other in range(size):
        expect(lists[other][0], mine(rank=other))
        expect(lists[other][1], mine(2, other))
    outputs = [torch.empty(5) for _ in range(size)]
    dist.gather(mine(), outputs if rank == 0 else None, dst=0)
    for other in range(size if rank == 0 else 0):
        expect(outputs[other], mine(rank=other))
    if hasattr(dist, "gather_single"):
        output = torch.empty(size * 5) if rank == size - 1 else None
        dist.gather_single(mine(), output, dst=size - 1)
        if rank == size - 1:
            expect(output, torch.cat([mine(rank=other) for other in range(size)]))
    dist.scatter(output := torch.empty(5), [mine(rank=other) for other in range(size)] if rank == 0 else None, src=0)
    expect(output, mine())
    dist.broadcast(tensor := mine(), src=size - 1)
    expect(tensor, mine(rank=size - 1))
    dist.barrier()


def exchanges(rank, size):
    inputs = [torch.full((1 + part,), float(10 * rank + part)) for part in range(size)]
    outputs = [torch.empty(1 + rank) for _ in range(size)]
    dist.all_to_all(outputs, inputs)
    for other in range(size):
        expect(outputs[other], torch.full((1 + rank,), float(10 * other + rank)))
    output = torch.empty(size * (1 + rank))
    dist.all_to_all_single(output, torch.cat(inputs), [1 + rank] * size, [1 + part for part in range(size)])
    expect(output, torch.cat(outputs))
    dist.all_to_all_single(output := torch.empty(size), torch.full((size,), float(rank)))
    expect(output, torch.arange(float(size)))


def messages(rank, size):
    after, before = (rank + 1) % size, (rank - 1) % size
    sent = dist.isend(mine(), after, tag=7)
    dist.recv(received := torch.empty(5), before, tag=7)
    sent.wait()
    expect(received, mine(rank=before))
    received = torch.empty(5)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine(), after),
                                        dist.P2POp(dist.irecv, received, before)]):
        work.wait()
    expect(received, mine(rank=before))


    if rank == 0:
        senders = []
        for _ in range(1, size):
            senders.append(dist.recv(received, None, tag=9))  # whoever is first
            expect(received, mine(rank=senders[-1]))
        assert sorted(senders) == list(range(1, size)), senders
    else:
        dist.send(mine(), 0, tag=9)


def moves(rank, size):
    """Types that kolo does not reduce travel by all that only moves elements."""
    for dtype in (torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2):
        width = dtype.itemsize

        def of(other, dtype=dtype, width=width):
            return torch.full((3 * width,), 17 + other, dtype=torch.uint8).view(dtype)

        def check(got, wanted):
            expect(got.view(torch.uint8), wanted.view(torch.uint8))

        def empty(count, dtype=dtype):
            return torch.empty(count, dtype=dtype)

        every = [of(other) for other in range(size)]
        dist.broadcast(tensor := of(rank), src=size - 1)
        check(tensor, of(size - 1))
        dist.all_gather(outputs := [empty(3) for _ in every], of(rank))
        list(map(check, outputs, every))
        dist.all_gather_into_tensor(output := empty(3 * size), of(rank))
        list(map(check, output.split(3), every))
        dist.gather(of(rank), outputs if rank == 0 else None)
        list(map(check, outputs, every))
        dist.scatter(output := empty(3), every if rank == 0 else None)
        check(output, of(rank))
        dist.all_to_all(outputs := [empty(3) for _ in every], [of(rank)] * size)
        list(map(check, outputs, every))
        dist.all_to_all_single(output := empty(size), torch.cat([part[:1] for part in every]))
        check(output, torch.cat([of(rank)[:1]] * size))
        sent = dist.isend(of(rank), (rank + 1) % size)
        dist.recv(output := empty(3), (rank - 1) % size)
        sent.wait()
        check(output, of((rank - 1) % size))
        raises(dist.DistBackendError, lambda: dist.all_reduce(of(0)), "c10d allreduce: ", "kolo reduces float64")
        raises(dist.DistBackendError, lambda: dist.reduce_scatter_tensor(empty(3), torch.empty(3 * size, dtype=dtype)),
               "kolo reduces float64")


def objects(rank, size):
    dist.all_gather_object(everyone := [None] * size, {"rank": rank, "text": "x" * rank})
    assert everyone == [{"rank": other, "text": "x" * other} for other in range(size)], everyone
    listed = [f"of rank {rank}", rank]
    dist.broadcast_object_list(listed, src=1 % size)
    assert listed == [f"of rank {1 % size}", 1 % size], listed
    dist.scatter_object_list(got := [None], [{"for": other} for other in range(size)] if rank == 0 else None, src=0)
    assert got == [{"for": rank}], got
    dist.gather_object(rank, everyone := [None] * size if rank == 0 else None, dst=0)
    assert rank != 0 or everyone == list(range(size)), everyone


def groups(rank, size):
    """Made by their members alone; several at once; split; removed."""
    pairs = [dist.new_group([first, (first + 1) % size]) for first in range(size)] if size > 2 else []
    for first, pair in enumerate(pairs):
        members = sorted([first, (first + 1) % size])
        if rank not in members:
            continue
        dist.all_reduce(tensor := mine(), group=pair)
        expect(tensor, mine(rank=members[0]) + mine(rank=members[1]))
    everyone = dist.new_group()
    dist.all_reduce(tensor := torch.ones(1), group=everyone)
    expect(tensor, torch.full((1,), float(size)))
    dist.destroy_process_group(everyone)
    alone = dist.new_group([rank], use_local_synchronization=True)
    dist.all_reduce(tensor := mine(), group=alone)
    expect(tensor, mine())
    if size > 1:
        half = dist.split_group(split_ranks=[[0], list(range(1, size))])
        dist.all_reduce(tensor := torch.ones(1), group=half)
        expect(tensor, torch.full((1,), 1.0 if rank == 0 else size - 1.0))


def barriers(rank, size):
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=20))
    if size > 1:
        late = datetime.timedelta(seconds=0.3)
        pair = dist.new_group()
        if rank == 0:
            raises(RuntimeError, lambda: dist.monitored_barrier(pair, late, wait_all_ranks=True),
                   f"Rank{'s' if size > 2 else ''} {', '.join(map(str, range(1, size)))} failed to pass")
        dist.barrier()


def memory(rank, size):
    """Tensors in memory that the ranks of this host share."""
    cpu = torch.device("cpu")
    backend = dist.group.WORLD._get_backend(cpu)
    assert backend.supports_tensor_alloc(cpu)
    before = backend.memory_stats()
    tensor = backend.allocate_tensor(5, dtype=torch.float32, device=cpu)
    after = backend.memory_stats()
    assert (after["arena_bytes_used"] > before["arena_bytes_used"]) == (size > 1), (before, after)
    assert after["arena_bytes_used"] <= after["arena_bytes"] and after["device_arena_bytes"] == 0, after
    expect(tensor, torch.zeros(5))
    with open("/proc/self/maps", encoding="ascii") as maps:
        spans = [(*(int(end, 16) for end in line.split()[0].split("-")), line) for line in maps]
    place = next(line for begin, end, line in spans if begin <= tensor.data_ptr() < end)
    assert size == 1 or "kolo" in place, place
    tensor += mine()
    dist.all_reduce(tensor)
    expect(tensor, sum(mine(rank=other) for other in range(size)))
    from kolo.c10d import KoloError
    error = raises(KoloError, lambda: backend.allocate_tensor(-1, dtype=torch.float32, device=cpu), "[-1] is no shape")
    assert error.code == "invalid argument", error.code


def devices(rank, size):
    """device_id is this rank's GPU, if it is one; of the default group, torch gives it to all others."""
    import kolo.c10d
    group = types.SimpleNamespace(bound_device_id=torch.device("cuda:3"))
    described = types.SimpleNamespace(process_group=group, store=None, timeout=datetime.timedelta(seconds=20),
                                      group_rank=rank, group_size=size, global_ranks_in_group=list(range(size)))
    raises(kolo.c10d.KoloError, lambda: kolo.c10d._create(described, None), "cuda:3", f"rank {rank}", "the CPU")
    described.enable_reconfigure = True
    raises(kolo.c10d.KoloError, lambda: kolo.c10d._create(described, None), "cuda:3", "KOLO_DEVICE")
    group.bound_device_id = torch.device("cpu:0")
    del described.enable_reconfigure
    assert kolo.c10d._create(described, None).size() == size


def errors(rank, size):
    from kolo.c10d import KoloError
    error = raises(dist.DistBackendError, lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BXOR), "not Float tensors by BXOR")
    assert isinstance(error, KoloError) and error.code, error.code
    if size == 1:
        return
    mine_is = torch.empty(4 if rank == 0 else 3)
    if rank == 0:
        raises(RuntimeError, lambda: dist.gather(mine_is, [torch.empty(4) for _ in range(size)]),
               "c10d gather: 3 elements came from rank 1, but the output for them has 4")
        future = dist.gather(mine_is, [torch.empty(4) for _ in range(size)], async_op=True).get_future()
        assert raises(KoloError, future.wait, "3 elements came from rank 1").code == "mismatch"
    else:
        dist.gather(mine_is)
        dist.gather(mine_is)
    dist.barrier()


def main():
    """Every part by env://, or all-reduces by each init method of the arguments, one after the other."""
    warnings.simplefilter("ignore", FutureWarning)  # forms that torch will drop
    rank, size = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
    every = (reductions, gathers, exchanges, messages, moves, objects, groups, barriers, memory, devices, errors)
    for method in sys.argv[1:] or ["env://"]:
        dist.init_process_group("kolo", init_method=method, **({} if method == "env://" else {"rank": rank, "world_size": size}))
        assert dist.get_backend() == "kolo" and (dist.get_rank(), dist.get_world_size()) == (rank, size)
        for part in every if len(sys.argv) == 1 else (reductions,):
            part(rank, size)
        dist.destroy_process_group()
    print(f"rank {rank} of {size} is done", flush=True)


main()

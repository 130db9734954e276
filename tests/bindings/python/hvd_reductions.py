"""kolo.torch's reductions: allreduce in all its forms, reducescatter, sparse. A rank of a job."""
import kolo.torch as hvd
import torch
from hvd_rank import FLOATS, SHAPES, TYPES, data, everyone, expect, mine, raises, sets


def check_types_and_shapes():
    for dtype in TYPES:
        for shape in SHAPES:
            all_of = everyone(shape, dtype)
            expect(hvd.allreduce(data(shape, dtype), op=hvd.Sum), all_of.sum(0).to(dtype), dtype)
            expect(hvd.allreduce(data(shape, dtype), op=hvd.Min), all_of.amin(0), dtype)
            expect(hvd.allreduce(data(shape, dtype), op=hvd.Max), all_of.amax(0), dtype)
            expect(hvd.allreduce(data(shape, dtype), op=hvd.Product), all_of.prod(0).to(dtype), dtype)


def check_average_is_the_default():
    for dtype in FLOATS:
        wanted = everyone((7,), torch.float64).mean(0).to(dtype)
        expect(hvd.allreduce(data((7,), dtype)), wanted)
        expect(hvd.allreduce(data((7,), dtype), average=True), wanted)
        expect(hvd.synchronize(hvd.allreduce_async(data((7,), dtype), op=hvd.Average)), wanted)
    expect(hvd.allreduce(data((7,)), average=False), everyone((7,)).sum(0))
    wanted = (everyone((7,), torch.int64).sum(0) / hvd.size()).trunc().long()
    expect(hvd.allreduce(data((7,), torch.int64)), wanted)
    raises(ValueError, lambda: hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum), "average")
    raises(ValueError, lambda: hvd.allreduce(torch.ones(1), op="sum"), "op")


def check_in_place():
    tensor = data((6, 3))
    returned = hvd.allreduce_(tensor, op=hvd.Sum)
    assert returned is tensor
    expect(tensor, everyone((6, 3)).sum(0))
    turned = data((6, 3)).t()
    expect(hvd.synchronize(hvd.allreduce_async_(turned, op=hvd.Sum)), everyone((6, 3)).sum(0).t())
    expect(turned, everyone((6, 3)).sum(0).t())
    parameter = torch.nn.Parameter(data((4,)))
    hvd.allreduce_(parameter.data, op=hvd.Sum)
    expect(parameter.detach(), everyone((4,)).sum(0))


def check_inputs_stay():
    tensor = data((5,))
    hvd.allreduce(tensor)
    hvd.reducescatter(tensor)
    expect(tensor, data((5,)))


def check_many_at_once():
    for make in (hvd.allreduce_async, hvd.allreduce_async_):
        handles = [make(data((1 + seed % 9,), seed=seed), op=hvd.Sum) for seed in range(200)]
        while not all(hvd.poll(handle) for handle in handles):
            pass
        for seed, handle in enumerate(handles):
            expect(hvd.synchronize(handle), everyone((1 + seed % 9,), seed=seed).sum(0))
    handles = {seed: hvd.allreduce_async(data((4,), seed=seed), name=f"any order {seed}", op=hvd.Sum)
               for seed in (range(50) if hvd.rank() else reversed(range(50)))}
    for seed, handle in handles.items():
        expect(hvd.synchronize(handle), everyone((4,), seed=seed).sum(0))


def check_factors():
    for dtype in FLOATS:
        wanted = (everyone((9,), torch.float64).sum(0) * 1.5).to(dtype)
        expect(hvd.allreduce(data((9,), dtype), op=hvd.Sum, prescale_factor=1.5), wanted)
        expect(hvd.allreduce(data((9,), dtype), op=hvd.Sum, postscale_factor=1.5), wanted)
        expect(hvd.grouped_allreduce([data((9,), dtype)] * 2, op=hvd.Sum, prescale_factor=3.0, postscale_factor=0.5)[1],
               wanted)
    expect(hvd.allreduce(data((9,), torch.int32), op=hvd.Sum, prescale_factor=2.0),
           2 * everyone((9,), torch.int32).sum(0).int())


def check_compression():
    for compression, half in ((hvd.Compression.fp16, torch.float16), (hvd.Compression.bf16, torch.bfloat16)):
        for dtype in (torch.float32, torch.float64):
            wire, context = compression.compress(data((8,), dtype))
            assert wire.dtype == half
            expect(compression.decompress(wire, context), data((8,), dtype))
            expect(hvd.allreduce(data((8,), dtype), op=hvd.Sum, compression=compression), everyone((8,), dtype).sum(0))
        wire, context = compression.compress(data((8,), torch.int64))
        assert wire.dtype == torch.int64
    expect(hvd.reducescatter(data((hvd.size(),)), op=hvd.Sum, compression=hvd.Compression.fp16),
           everyone((hvd.size(),)).sum(0)[hvd.rank():hvd.rank() + 1])


def check_adasum():
    equal = torch.arange(1.0, 5.0)
    if hvd.size() & (hvd.size() - 1) == 0:
        expect(hvd.allreduce(equal, op=hvd.Adasum), equal)
    alone = torch.zeros(hvd.size()).index_fill(0, torch.tensor(hvd.rank()), 1.0)
    expect(hvd.allreduce(alone, op=hvd.Adasum), torch.ones(hvd.size()))


def check_process_sets():
    ranks = mine().ranks
    expect(hvd.allreduce(data((5,)), op=hvd.Sum, process_set=mine()), everyone((5,), ranks=ranks).sum(0))
    expect(hvd.allreduce(data((5,)), name="one name", process_set=mine()), everyone((5,), ranks=ranks).mean(0))
    expect(hvd.grouped_allreduce([data((5,)), data((2, 2))], op=hvd.Sum, process_set=mine())[1],
           everyone((2, 2), ranks=ranks).sum(0))
    rows = hvd.reducescatter(data((2 * len(ranks), 3)), op=hvd.Sum, process_set=mine())
    place = ranks.index(hvd.rank())
    expect(rows, everyone((2 * len(ranks), 3), ranks=ranks).sum(0)[2 * place:2 * place + 2])
    if hvd.size() > 1:
        other = sets["odd" if hvd.rank() % 2 == 0 else "even"]
        raises(RuntimeError, lambda: hvd.allreduce(torch.ones(1), name="not ours", process_set=other))


def check_shapes_must_agree():
    if hvd.size() == 1:
        return
    raises(RuntimeError, lambda: hvd.allreduce(torch.ones(17 + hvd.rank(), 3)), "rank", "17", "18")
    raises(RuntimeError, lambda: hvd.allreduce(torch.ones((17, 3) if hvd.rank() == 0 else (3, 17))), "rank")
    raises(RuntimeError, lambda: hvd.reducescatter(torch.ones(17 + hvd.rank(), 3)), "rank", "17", "18")


def check_types_must_agree():
    if hvd.size() == 1:
        return
    dtype = torch.float32 if hvd.rank() % 2 == 0 else torch.int32
    raises(RuntimeError, lambda: hvd.allreduce(torch.ones(17, 3, dtype=dtype)), "float32", "int32")
    raises(RuntimeError, lambda: hvd.reducescatter(torch.ones(17, 3, dtype=dtype)), "float32", "int32")
    raises(RuntimeError, lambda: hvd.allreduce(torch.ones(2), op=hvd.Sum if hvd.rank() else hvd.Max), "sum", "max")
    expect(hvd.allreduce(torch.ones(2)), torch.ones(2), "kolo stays usable")


def check_a_name_twice():
    """Another rank may not have begun the first yet, so it is in flight."""
    if hvd.size() == 1:
        return
    for start in (hvd.allreduce_async, hvd.reducescatter_async):
        if hvd.rank() == 0:
            first = start(torch.ones(hvd.size()), name="twice", op=hvd.Sum)
            error = raises(ValueError, lambda: start(torch.ones(hvd.size()), name="twice", op=hvd.Sum), "twice")
            assert isinstance(error, hvd.KoloError) and error.code == "invalid argument", error.code
            hvd.barrier()
        else:
            hvd.barrier()
            first = start(torch.ones(hvd.size()), name="twice", op=hvd.Sum)
        assert hvd.synchronize(first)[0] == hvd.size()


def check_wrong_on_one_rank_alone():
    bad = torch.ones(3).to_sparse() if hvd.rank() == 0 else torch.ones(3)
    raises(RuntimeError, lambda: hvd.allreduce(bad, name="sparse on one"), "rank 0", "sparse")
    expect(hvd.allreduce(torch.ones(3)), torch.ones(3))


def check_groups():
    tensors = [data(shape, seed=seed) for seed, shape in enumerate(SHAPES)]
    sums = [everyone(shape, seed=seed).sum(0) for seed, shape in enumerate(SHAPES)]
    for got, wanted in zip(hvd.grouped_allreduce(tensors, op=hvd.Sum), sums, strict=True):
        expect(got, wanted)
    for got, wanted in zip(hvd.grouped_allreduce(tensors), sums, strict=True):
        expect(got, wanted / hvd.size())
    for got, wanted in zip(hvd.synchronize(hvd.grouped_allreduce_async(tensors, op=hvd.Sum)), sums, strict=True):
        expect(got, wanted)
    returned = hvd.grouped_allreduce_(tensors, op=hvd.Sum)
    for got, given, wanted in zip(returned, tensors, sums, strict=True):
        assert got is given
        expect(got, wanted)
    if hvd.size() > 1:
        uneven = [torch.ones(2), torch.ones(3 if hvd.rank() else 4)]
        raises(RuntimeError, lambda: hvd.grouped_allreduce(uneven, name="uneven"), "uneven", "3", "4")


def check_reducescatter():
    size, rank = hvd.size(), hvd.rank()
    for dtype in TYPES:
        for op, of in ((hvd.Sum, lambda all_of: all_of.sum(0)), (hvd.Min, lambda all_of: all_of.amin(0))):
            wanted = of(everyone((2 * size, 3), dtype)).to(dtype)[2 * rank:2 * rank + 2]
            expect(hvd.reducescatter(data((2 * size, 3), dtype), op=op), wanted)
    for dtype in FLOATS:
        wanted = everyone((size, 3), torch.float64).mean(0)[rank:rank + 1]
        expect(hvd.reducescatter(data((size, 3), dtype)), wanted.to(dtype))
        expect(hvd.reducescatter(data((size, 3), dtype), prescale_factor=1.5), (1.5 * wanted).to(dtype))
        expect(hvd.reducescatter(data((size, 3), dtype), postscale_factor=1.5), (1.5 * wanted).to(dtype))
    rows = 2 * size + 1  # the first rank gets one more
    first = 0 if rank == 0 else 2 * rank + 1
    expect(hvd.reducescatter(data((rows,)), op=hvd.Sum),
           everyone((rows,)).sum(0)[first:first + (3 if rank == 0 else 2)])
    handles = [hvd.reducescatter_async(data((size,), seed=seed), op=hvd.Sum) for seed in range(50)]
    for seed, handle in enumerate(handles):
        expect(hvd.synchronize(handle), everyone((size,), seed=seed).sum(0)[rank:rank + 1])
    raises(RuntimeError, lambda: hvd.reducescatter(torch.tensor(1.0)), "scalar")
    raises(RuntimeError, lambda: hvd.reducescatter(torch.ones(size), op=hvd.Adasum), "adasum")


def check_groups_of_reducescatters():
    size, rank = hvd.size(), hvd.rank()
    tensors = [data((size * (seed + 1), 2), seed=seed) for seed in range(3)]
    for options, factor in (({"op": hvd.Sum}, 1.0), ({}, 1 / size), ({"op": hvd.Sum, "prescale_factor": 2.0}, 2.0),
                            ({"op": hvd.Sum, "postscale_factor": 0.5}, 0.5)):
        for seed, got in enumerate(hvd.grouped_reducescatter(tensors, **options)):
            rows = seed + 1
            wanted = factor * everyone((size * rows, 2), seed=seed).sum(0)[rows * rank:rows * rank + rows]
            expect(got, wanted)
    raises(RuntimeError, lambda: hvd.grouped_reducescatter([torch.ones(size), torch.tensor(1.0)]), "scalar")


def check_sparse():
    def sparse(rank):
        return torch.sparse_coo_tensor(torch.tensor([[rank, 4]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), (5, 2))
    wanted = torch.stack([sparse(rank).to_dense() for rank in range(hvd.size())]).sum(0)
    handle = hvd.sparse_allreduce_async(sparse(hvd.rank()), name="sum", op=hvd.Sum)
    expect(hvd.synchronize(handle).to_dense(), wanted)
    expect(handle().to_dense(), wanted)
    handles = [hvd.sparse_allreduce_async(sparse(hvd.rank()), f"number {number}", hvd.Average) for number in range(20)]
    for handle in handles:
        expect(hvd.synchronize(handle).to_dense(), wanted / hvd.size())
        assert hvd.poll(handle)
    ranks = mine().ranks
    own = hvd.synchronize(hvd.sparse_allreduce_async(sparse(hvd.rank()), "of a set", hvd.Sum, process_set=mine()))
    expect(own.to_dense(), torch.stack([sparse(rank).to_dense() for rank in ranks]).sum(0))
    raises(RuntimeError, lambda: hvd.synchronize(hvd.sparse_allreduce_async(torch.ones(2), "dense", hvd.Sum)), "sparse")

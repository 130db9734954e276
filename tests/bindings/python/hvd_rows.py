"""kolo.torch's moves: allgather, broadcast, alltoall; and the gradients of all collectives. A rank of a job."""
import kolo.torch as hvd
import torch
from hvd_rank import SHAPES, TYPES, data, everyone, expect, mine, raises


def check_allgather():
    for dtype in (*TYPES, torch.bool):
        for shape in SHAPES:
            expect(hvd.allgather(data(shape, dtype)), torch.cat(list(everyone(shape, dtype))), dtype)
    uneven = [data((2 * rank + 1, 3), rank=rank) for rank in range(hvd.size())]
    expect(hvd.allgather(uneven[hvd.rank()]), torch.cat(uneven))
    expect(hvd.allgather(torch.ones(hvd.rank(), 3)), torch.ones(sum(range(hvd.size())), 3), "no rows from rank 0")
    handles = [hvd.allgather_async(data((seed % 3 + 1,), seed=seed)) for seed in range(60)]
    for seed, handle in enumerate(handles):
        expect(hvd.synchronize(handle), everyone((seed % 3 + 1,), seed=seed).flatten())


def check_allgather_must_agree():
    if hvd.size() == 1:
        return
    raises(RuntimeError, lambda: hvd.allgather(torch.ones(2, 3 + hvd.rank())), "rank", "3", "4")
    raises(RuntimeError, lambda: hvd.allgather(torch.ones(2, dtype=torch.int32 if hvd.rank() else torch.float32)),
           "int32", "float32")


def check_groups_of_allgathers():
    tensors = [data((hvd.rank() + seed, 2), seed=seed) for seed in range(3)]
    for seed, got in enumerate(hvd.grouped_allgather(tensors)):
        expect(got, torch.cat([data((rank + seed, 2), rank=rank, seed=seed) for rank in range(hvd.size())]))
    ranks = mine().ranks
    own = hvd.grouped_allgather([data((2,)), data((1, 4))], process_set=mine())
    expect(own[1], everyone((1, 4), ranks=ranks).flatten(0, 1))


def check_broadcast():
    for dtype in (*TYPES, torch.bool):
        for root in range(hvd.size()):
            tensor = data((4, 3), dtype)
            expect(hvd.broadcast(tensor, root), data((4, 3), dtype, rank=root))
            expect(tensor, data((4, 3), dtype))
            assert hvd.broadcast_(tensor, root) is tensor
            expect(tensor, data((4, 3), dtype, rank=root))
    handles = [hvd.broadcast_async(data((3,), seed=seed), seed % hvd.size()) for seed in range(50)]
    for seed, handle in enumerate(handles):
        expect(hvd.synchronize(handle), data((3,), rank=seed % hvd.size(), seed=seed))


def check_broadcast_must_agree():
    raises(RuntimeError, lambda: hvd.broadcast(torch.ones(1), hvd.size()), "root", hvd.size())
    raises(TypeError, lambda: hvd.broadcast(1.5, 0), "a float", "as_tensor")
    if hvd.size() == 1:
        return
    raises(RuntimeError, lambda: hvd.broadcast(torch.ones(2, 3 + hvd.rank()), 0), "rank", "3", "4")
    raises(RuntimeError, lambda: hvd.broadcast(torch.ones(2, dtype=torch.int32 if hvd.rank() else torch.float32), 0),
           "int32", "float32")
    raises(RuntimeError, lambda: hvd.broadcast(torch.ones(2), min(hvd.rank(), 1)), "rank", "root")


def check_alltoall():
    size, rank = hvd.size(), hvd.rank()
    for dtype in TYPES:
        splits = [to + rank for to in range(size)]
        sent = torch.cat([torch.full((rows, 2), 10 * rank + to, dtype=dtype) for to, rows in enumerate(splits)])
        for given in (splits, torch.tensor(splits, dtype=torch.int32), torch.tensor(splits)):
            output, received = hvd.alltoall(sent, given)
            expect(output, torch.cat([torch.full((rank + of, 2), 10 * of + rank, dtype=dtype) for of in range(size)]))
            assert received.dtype == (given.dtype if isinstance(given, torch.Tensor) else torch.int32)
            assert received.tolist() == [rank + of for of in range(size)]
    even = torch.arange(2 * size) + 100 * rank
    expect(hvd.alltoall(even), torch.cat([torch.arange(2 * rank, 2 * rank + 2) + 100 * of for of in range(size)]))
    output, received = hvd.synchronize(hvd.alltoall_async(even))
    assert received.tolist() == [2] * size
    ranks = mine().ranks
    output, received = hvd.alltoall(torch.full((len(ranks),), rank), [1] * len(ranks), process_set=mine())
    assert output.tolist() == ranks


def check_alltoall_must_agree():
    size = hvd.size()
    raises(ValueError, lambda: hvd.alltoall(torch.ones(4), torch.ones(size)), "integers")
    raises(RuntimeError, lambda: hvd.alltoall(torch.ones(size), [2] * size), "splits")
    if size == 1:
        return
    raises(RuntimeError, lambda: hvd.alltoall(torch.ones(size + 1)), "even")
    raises(RuntimeError, lambda: hvd.alltoall(torch.ones(size, 3 + hvd.rank())), "rank", "3", "4")
    raises(RuntimeError, lambda: hvd.alltoall(torch.ones(size, dtype=torch.int32 if hvd.rank() else torch.float32)),
           "int32", "float32")


def check_a_name_twice():
    if hvd.size() == 1:
        return
    for start in (hvd.allgather_async, lambda tensor, name: hvd.broadcast_async(tensor, 0, name)):
        if hvd.rank() == 0:
            first = start(torch.ones(2), name="twice")
            raises(ValueError, lambda: start(torch.ones(2), name="twice"), "twice")
            hvd.barrier()
        else:
            hvd.barrier()
            first = start(torch.ones(2), name="twice")
        hvd.synchronize(first)


def check_process_sets():
    ranks = mine().ranks
    expect(hvd.allgather(data((3, 2)), process_set=mine()), everyone((3, 2), ranks=ranks).flatten(0, 1))
    expect(hvd.broadcast(data((3,)), ranks[-1], process_set=mine()), data((3,), rank=ranks[-1]))


# Gradients: each rank weighs its outputs by the number of its rank, plus one. They are Horovod's: an average over the
# ranks for an allgather and a broadcast, and for a reducescatter that of its sum, times the number of ranks.


def gradient_of(call, shape, weight):
    """The gradient of one of data() through the call, whose outputs are weighed."""
    tensor = data(shape).requires_grad_()
    outputs = call(tensor)
    outputs = outputs if isinstance(outputs, list) else [outputs]
    sum((output * weight).sum() for output in outputs).backward()
    return tensor.grad


def check_gradients_of_allreduce():
    size, weight = hvd.size(), hvd.rank() + 1.0
    total = size * (size + 1) / 2
    for shape in SHAPES:
        for op, factor in ((hvd.Sum, 1.0), (hvd.Average, 1 / size)):
            wanted = torch.full(shape, total * factor)
            expect(gradient_of(lambda tensor, op=op: hvd.allreduce(tensor, op=op), shape, weight), wanted)
            expect(gradient_of(lambda tensor, op=op: hvd.grouped_allreduce([tensor, 2 * tensor], op=op), shape, weight),
                   3 * wanted)
    expect(gradient_of(lambda tensor: hvd.allreduce(tensor, op=hvd.Sum, prescale_factor=2.0), (3,), weight),
           torch.full((3,), 2 * total))
    largest = hvd.allreduce(data((3,)).requires_grad_(), op=hvd.Max)
    expect(largest.detach(), everyone((3,)).amax(0))
    raises((RuntimeError, NotImplementedError), lambda: largest.sum().backward(), "Max")
    half = gradient_of(lambda tensor: hvd.allreduce(tensor, op=hvd.Sum, compression=hvd.Compression.fp16), (3,), weight)
    expect(half, torch.full((3,), total))


def check_gradients_of_allgather():
    size, rank = hvd.size(), hvd.rank()
    mean = (size + 1) / 2
    shape = (rank + 2, 3)
    rows = torch.arange(float(sum(range(2, size + 2)))).unsqueeze(1)  # each row of the output weighs something else
    first = sum(range(2, rank + 2))
    wanted = mean * rows[first:first + rank + 2].expand(shape)
    expect(gradient_of(hvd.allgather, shape, rows * (rank + 1)), wanted)
    expect(gradient_of(lambda tensor: hvd.grouped_allgather([tensor, 2 * tensor]), shape, rows * (rank + 1)), 3 * wanted)


def check_gradients_of_broadcast():
    size, rank = hvd.size(), hvd.rank()
    for root in range(size):
        wanted = torch.full((4,), (size + 1) / 2 if rank == root else 0.0)
        expect(gradient_of(lambda tensor, root=root: hvd.broadcast(tensor, root), (4,), rank + 1.0), wanted)


def check_gradients_of_alltoall():
    size, rank = hvd.size(), hvd.rank()
    splits = [to + 1 for to in range(size)]
    rows = sum(splits)
    wanted = torch.cat([torch.full((to + 1,), to + 1.0) for to in range(size)])
    expect(gradient_of(lambda tensor: hvd.alltoall(tensor, splits)[0], (rows,), rank + 1.0), wanted)
    expect(gradient_of(hvd.alltoall, (size, 2), rank + 1.0), torch.arange(1.0, size + 1).repeat_interleave(2).view(size, 2))


def check_gradients_of_reducescatter():
    size, rank = hvd.size(), hvd.rank()
    for op, factor in ((hvd.Sum, size), (hvd.Average, 1.0)):
        wanted = torch.arange(1.0, size + 1).repeat_interleave(2) * factor
        expect(gradient_of(lambda tensor, op=op: hvd.reducescatter(tensor, op=op), (2 * size,), rank + 1.0), wanted)
        expect(gradient_of(lambda tensor, op=op: hvd.grouped_reducescatter([tensor, 2 * tensor], op=op), (2 * size,),
                           rank + 1.0), 3 * wanted)


def check_gradients_over_process_sets():
    ranks, rank = mine().ranks, hvd.rank()
    weight = rank + 1.0
    total = sum(other + 1.0 for other in ranks)
    own = {"process_set": mine()}
    expect(gradient_of(lambda tensor: hvd.allreduce(tensor, op=hvd.Sum, **own), (3,), weight), torch.full((3,), total))
    expect(gradient_of(lambda tensor: hvd.grouped_allreduce([tensor], op=hvd.Sum, **own), (3,), weight),
           torch.full((3,), total))
    mean = torch.full((3,), total / len(ranks))
    expect(gradient_of(lambda tensor: hvd.allgather(tensor, **own), (3,), weight), mean)
    expect(gradient_of(lambda tensor: hvd.grouped_allgather([tensor], **own), (3,), weight), mean)
    expect(gradient_of(lambda tensor: hvd.broadcast(tensor, ranks[0], **own), (3,), weight),
           mean if rank == ranks[0] else 0 * mean)
    dealt = torch.tensor([other + 1.0 for other in ranks])
    expect(gradient_of(lambda tensor: hvd.alltoall(tensor, **own), (len(ranks),), weight), dealt)
    expect(gradient_of(lambda tensor: hvd.reducescatter(tensor, op=hvd.Sum, **own), (len(ranks),), weight),
           dealt * len(ranks))
    expect(gradient_of(lambda tensor: hvd.grouped_reducescatter([tensor], **own), (len(ranks),), weight), dealt)


def check_gradients_of_gradients():
    """A penalty of gradients: the second derivative of the sum of cubes."""
    tensor = torch.full((2,), hvd.rank() + 1.0, requires_grad=True)
    summed = hvd.grouped_allreduce([tensor], op=hvd.Sum)[0]
    first, = torch.autograd.grad((summed ** 3).sum(), tensor, create_graph=True)
    first.sum().backward()
    total = hvd.size() * (hvd.size() + 1) / 2
    expect(tensor.grad, torch.full((2,), 6.0 * total * hvd.size() ** 2))

"""Collectives on tensors. Names without ``_async`` block; those that end in ``_`` work in place.

Rules of all of them:

- Every rank of the process set makes the same calls. A name says which calls meet, so calls with names may come in
  any order; calls without meet in the order in which each rank makes them.
- Gradients go through the calls that block and are not in place. As in Horovod, that of an allgather or a broadcast is
  the average over ranks, that of an allreduce goes by its ``op``, and that of a reducescatter by Sum is multiplied by
  the number of ranks.
- Where ranks disagree, or one passes what cannot work, the call fails on all ranks with one text, and kolo stays
  usable.
"""
from collections.abc import Sequence
from typing import Any

import torch

from kolo._library import extension
from kolo.torch.autograd import (
    Alltoall,
    GroupedAllgather,
    GroupedAllreduce,
    GroupedReducescatter,
    WithoutGradient,
    has_gradient,
    requires_gradient,
    scaled_gradient,
)
from kolo.torch.compression import Compression
from kolo.torch.handles import Handle, only
from kolo.torch.names import forget_names, name_of
from kolo.torch.process_sets import ProcessSet, global_process_set, set_id

#: How the ranks' elements are combined.
ReduceOp = extension.ReduceOp
Average = ReduceOp.Average
Sum = ReduceOp.Sum
Adasum = ReduceOp.Adasum
Min = ReduceOp.Min
Max = ReduceOp.Max
Product = ReduceOp.Product

_LINEAR = (Average, Sum)


def _op(average: bool | None, op: Any) -> Any:
    if op is not None and average is not None:
        raise ValueError("op and average are both given; op says all that average does")
    if op is None:
        return Sum if average is False else Average
    if not isinstance(op, ReduceOp):
        raise ValueError(f"op={op!r}: it is Average, Sum, Min, Max, Product or Adasum")
    return op


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without its graph, which works do not have."""
    return tensor.detach() if requires_gradient(tensor) else tensor


# Allreduce


def allreduce(tensor: torch.Tensor, average: bool | None = None, name: str | None = None, compression: Any = Compression.none,
              op: Any = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """A new tensor: the ranks' tensors combined by ``op``, an average unless it says otherwise.

    Args:
        average: the older form of ``op``: ``False`` is ``Sum``.
        compression: how the tensor travels.
        prescale_factor: multiplies every rank's tensor before; integers truncate.
        postscale_factor: multiplies the result.
    """
    op = _op(average, op)
    wire, context = compression.compress(tensor)
    result: torch.Tensor
    arguments = (op, name_of("allreduce", name, set_id(process_set)), prescale_factor, postscale_factor,
                 set_id(process_set))
    if not has_gradient(wire):
        result = extension.allreduce_async(_plain(wire), *arguments).wait()
    elif op in _LINEAR:
        result = extension.differentiable_allreduce(wire, *arguments)
    else:
        result = WithoutGradient.apply(extension.allreduce_async(_plain(wire), *arguments).wait(), wire, op)
    result = compression.decompress(result, context)
    return result


def allreduce_async(tensor: torch.Tensor, average: bool | None = None, name: str | None = None, op: Any = None,
                    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                    process_set: ProcessSet = global_process_set) -> Handle[torch.Tensor]:
    """Like ``allreduce()``, whose result ``synchronize()`` returns."""
    work = extension.allreduce_async(_plain(tensor), _op(average, op), name_of("allreduce", name, set_id(process_set)),
                                      prescale_factor, postscale_factor, set_id(process_set))
    return Handle([work], only)


def allreduce_async_(tensor: torch.Tensor, average: bool | None = None, name: str | None = None, op: Any = None,
                     prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                     process_set: ProcessSet = global_process_set) -> Handle[torch.Tensor]:
    """Like ``allreduce_()``, whose result ``synchronize()`` returns."""
    work = extension.allreduce_async_(tensor, _op(average, op), name_of("allreduce", name, set_id(process_set)),
                                       prescale_factor, postscale_factor, set_id(process_set))
    return Handle([work], lambda _: tensor)


def allreduce_(tensor: torch.Tensor, average: bool | None = None, name: str | None = None, op: Any = None,
               prescale_factor: float = 1.0, postscale_factor: float = 1.0,
               process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """Like ``allreduce()``, into the tensor itself, which it returns."""
    return allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set).wait()


def grouped_allreduce(tensors: Sequence[torch.Tensor], average: bool | None = None, name: str | None = None,
                      compression: Any = Compression.none, op: Any = None, prescale_factor: float = 1.0,
                      postscale_factor: float = 1.0,
                      process_set: ProcessSet = global_process_set) -> list[torch.Tensor]:
    """Several all-reduces, all or none: they start once every rank has submitted all."""
    op = _op(average, op)
    compressed = [compression.compress(tensor) for tensor in tensors]
    wires = [wire for wire, _ in compressed]
    if any(map(has_gradient, wires)):
        if op not in _LINEAR:
            raise ValueError(f"grouped_allreduce by {op.name} has no gradient; detach() its tensors")
        results = GroupedAllreduce.apply(op, name, prescale_factor, postscale_factor, process_set, *wires)
    else:
        results = grouped_allreduce_async(wires, None, name, op, prescale_factor, postscale_factor, process_set).wait()
    return [compression.decompress(result, context)
            for result, (_, context) in zip(results, compressed, strict=True)]


def grouped_allreduce_async(tensors: Sequence[torch.Tensor], average: bool | None = None, name: str | None = None,
                            op: Any = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                            process_set: ProcessSet = global_process_set) -> Handle[list[torch.Tensor]]:
    """Like ``grouped_allreduce()``, whose results ``synchronize()`` returns."""
    works = extension.grouped_allreduce_async([_plain(tensor) for tensor in tensors], _op(average, op),
                                               name_of("grouped_allreduce", name, set_id(process_set)),
                                               prescale_factor, postscale_factor, set_id(process_set))
    return Handle(works, list)


def grouped_allreduce_async_(tensors: Sequence[torch.Tensor], average: bool | None = None, name: str | None = None,
                             op: Any = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                             process_set: ProcessSet = global_process_set) -> Handle[list[torch.Tensor]]:
    """Like ``grouped_allreduce_()``, whose results ``synchronize()`` returns."""
    works = extension.grouped_allreduce_async_(list(tensors), _op(average, op),
                                                name_of("grouped_allreduce", name, set_id(process_set)),
                                                prescale_factor, postscale_factor, set_id(process_set))
    return Handle(works, lambda _: list(tensors))


def grouped_allreduce_(tensors: Sequence[torch.Tensor], average: bool | None = None, name: str | None = None,
                       op: Any = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                       process_set: ProcessSet = global_process_set) -> list[torch.Tensor]:
    """Like ``grouped_allreduce()``, into the tensors themselves, which it returns."""
    return grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set).wait()


def sparse_allreduce_async(tensor: torch.Tensor, name: str | None = None, op: Any = None,
                           process_set: ProcessSet = global_process_set) -> Handle[torch.Tensor]:
    """Sum or average of sparse COO tensors of one shape; ``synchronize()`` returns a coalesced one.

    Indices and values are gathered, so it pays where few rows are set.
    """
    work = extension.sparse_allreduce_async(tensor.detach(), _op(None, op),
                                             name_of("sparse_allreduce", name, set_id(process_set)), 1.0, 1.0,
                                             set_id(process_set))
    return Handle([work], only)


# Allgather


def allgather(tensor: torch.Tensor, name: str | None = None,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """A new tensor: the rows of every rank's tensor, in rank order. The number of rows may differ."""
    if not has_gradient(tensor):
        return allgather_async(tensor, name, process_set).wait()
    number = set_id(process_set)
    shared = scaled_gradient(tensor, 1 / len(process_set.ranks))
    return extension.differentiable_allgather(shared, name_of("allgather", name, number), number)


def allgather_async(tensor: torch.Tensor, name: str | None = None,
                    process_set: ProcessSet = global_process_set) -> Handle[torch.Tensor]:
    """Like ``allgather()``, whose result ``synchronize()`` returns."""
    number = set_id(process_set)
    return Handle([extension.allgather_async(_plain(tensor), name_of("allgather", name, number), number)], only)


def grouped_allgather(tensors: Sequence[torch.Tensor], name: str | None = None,
                      process_set: ProcessSet = global_process_set) -> list[torch.Tensor]:
    """Several allgathers, all or none."""
    if any(map(has_gradient, tensors)):
        shared = (scaled_gradient(tensor, 1 / len(process_set.ranks)) for tensor in tensors)
        return list(GroupedAllgather.apply(name, process_set, *shared))
    return grouped_allgather_async(tensors, name, process_set).wait()


def grouped_allgather_async(tensors: Sequence[torch.Tensor], name: str | None = None,
                            process_set: ProcessSet = global_process_set) -> Handle[list[torch.Tensor]]:
    """Like ``grouped_allgather()``, whose results ``synchronize()`` returns."""
    number = set_id(process_set)
    works = extension.grouped_allgather_async([_plain(tensor) for tensor in tensors],
                                               name_of("grouped_allgather", name, number), number)
    return Handle(works, list)


# Broadcast


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None = None,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """A new tensor: the one of rank ``root_rank`` of the world. All ranks pass one shape and type."""
    if not has_gradient(tensor):
        return broadcast_async(tensor, root_rank, name, process_set).wait()
    number = set_id(process_set)
    shared = scaled_gradient(tensor, 1 / len(process_set.ranks))
    return extension.differentiable_broadcast(shared, root_rank, name_of("broadcast", name, number), number)


def broadcast_async(tensor: torch.Tensor, root_rank: int, name: str | None = None,
                    process_set: ProcessSet = global_process_set) -> Handle[torch.Tensor]:
    """Like ``broadcast()``, whose result ``synchronize()`` returns."""
    number = set_id(process_set)
    work = extension.broadcast_async(_plain(tensor), root_rank, name_of("broadcast", name, number), number)
    return Handle([work], only)


def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: str | None = None,
                     process_set: ProcessSet = global_process_set) -> Handle[torch.Tensor]:
    """Like ``broadcast_()``, whose result ``synchronize()`` returns."""
    number = set_id(process_set)
    work = extension.broadcast_async_(tensor, root_rank, name_of("broadcast", name, number), number)
    return Handle([work], lambda _: tensor)


def broadcast_(tensor: torch.Tensor, root_rank: int, name: str | None = None,
               process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """Like ``broadcast()``, into the tensor itself, which it returns."""
    return broadcast_async_(tensor, root_rank, name, process_set).wait()


# Alltoall


def _splits(splits: Any) -> list[int]:
    if splits is None:
        return []
    given = splits if isinstance(splits, torch.Tensor) else torch.tensor(splits)
    if given.dtype.is_floating_point or given.dtype.is_complex or given.dtype == torch.bool or given.dim() != 1:
        raise ValueError(f"alltoall takes splits as integers in one dimension, not {splits}")
    return given.tolist()


def _received(splits: Any, received: torch.Tensor) -> torch.Tensor:
    return received.to(splits) if isinstance(splits, torch.Tensor) else received


def alltoall(tensor: torch.Tensor, splits: Any = None, name: str | None = None,
             process_set: ProcessSet = global_process_set) -> Any:
    """A new tensor: the rows that the ranks have sent to this one, in rank order.

    Args:
        splits: how many rows go to each rank, as a tensor or a list of integers. Default: the rows are divided evenly.

    Returns:
        The tensor. With ``splits``, also how many rows have come from each rank, as a tensor.
    """
    output, received = Alltoall.apply(tensor, _splits(splits), name, process_set)
    return output if splits is None else (output, _received(splits, received))


def alltoall_async(tensor: torch.Tensor, splits: Any = None, name: str | None = None,
                   process_set: ProcessSet = global_process_set) -> Handle[tuple[torch.Tensor, torch.Tensor]]:
    """Like ``alltoall()``; ``synchronize()`` always returns both tensors."""
    number = set_id(process_set)
    work = extension.alltoall_async(_plain(tensor), _splits(splits), name_of("alltoall", name, number), number)

    def finish(results: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        return results[0], _received(splits, torch.tensor(work.received_splits(), dtype=torch.int32))

    return Handle([work], finish)


# Reducescatter


def reducescatter(tensor: torch.Tensor, name: str | None = None, compression: Any = Compression.none, op: Any = Average,
                  process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                  postscale_factor: float = 1.0) -> torch.Tensor:
    """A new tensor: this rank's rows of the ranks' tensors combined by ``op``.

    The first ``rows mod size`` ranks get a row more than the others.
    """
    wire, context = compression.compress(tensor)
    result: torch.Tensor
    number = set_id(process_set)
    if has_gradient(wire):
        result = extension.differentiable_reducescatter(scaled_gradient(wire, len(process_set.ranks)), _op(None, op),
                                                        name_of("reducescatter", name, number), prescale_factor,
                                                        postscale_factor, number)
    else:
        result = reducescatter_async(wire, name, op, process_set, prescale_factor, postscale_factor).wait()
    result = compression.decompress(result, context)
    return result


def reducescatter_async(tensor: torch.Tensor, name: str | None = None, op: Any = Average,
                        process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                        postscale_factor: float = 1.0) -> Handle[torch.Tensor]:
    """Like ``reducescatter()``, whose result ``synchronize()`` returns."""
    number = set_id(process_set)
    work = extension.reducescatter_async(_plain(tensor), _op(None, op), name_of("reducescatter", name, number),
                                          prescale_factor, postscale_factor, number)
    return Handle([work], only)


def grouped_reducescatter(tensors: Sequence[torch.Tensor], name: str | None = None, compression: Any = Compression.none,
                          op: Any = Average, process_set: ProcessSet = global_process_set,
                          prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> list[torch.Tensor]:
    """Several reducescatters, all or none."""
    compressed = [compression.compress(tensor) for tensor in tensors]
    wires = [wire for wire, _ in compressed]
    if any(map(has_gradient, wires)):
        if _op(None, op) not in _LINEAR:
            raise ValueError(f"grouped_reducescatter by {op.name} has no gradient; detach() its tensors")
        scaled = (scaled_gradient(wire, len(process_set.ranks)) for wire in wires)
        results = GroupedReducescatter.apply(op, name, prescale_factor, postscale_factor, process_set, *scaled)
    else:
        results = grouped_reducescatter_async(wires, name, op, process_set, prescale_factor, postscale_factor).wait()
    return [compression.decompress(result, context)
            for result, (_, context) in zip(results, compressed, strict=True)]


def grouped_reducescatter_async(tensors: Sequence[torch.Tensor], name: str | None = None, op: Any = Average,
                                process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                                postscale_factor: float = 1.0) -> Handle[list[torch.Tensor]]:
    """Like ``grouped_reducescatter()``, whose results ``synchronize()`` returns."""
    number = set_id(process_set)
    works = extension.grouped_reducescatter_async([_plain(tensor) for tensor in tensors], _op(None, op),
                                                   name_of("grouped_reducescatter", name, number), prescale_factor,
                                                   postscale_factor, number)
    return Handle(works, list)


# The world


def join(device: int = -1) -> int:
    """Says that this rank has no more data, and waits until all ranks have said so.

    Until then this rank counts as zeros in the others' sums and averages; an average divides by the ranks that have
    not joined. What cannot do without this rank (an allgather, a broadcast) fails on the others.

    Args:
        device: has no effect; kolo needs no tensor on a device for it.

    Returns:
        The rank that came last, which has seen all of the others' work.
    """
    last = extension.join(0)
    forget_names(0)  # ranks have made different numbers of calls
    return last


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until every rank of the process set has called it."""
    extension.barrier(set_id(process_set))

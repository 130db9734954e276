"""Gradients through collectives, as Horovod has them.

C++ gives the gradient of the sum over ranks of each rank's loss, and so do the classes here, which are what C++ lacks:
alltoall with the received splits, and groups. ``scaled_gradient`` makes Horovod's of them. Backward is collective and
unnamed, and itself recorded with ``create_graph``.
"""
from typing import Any

import torch

from kolo._library import extension
from kolo.torch.handles import Handle
from kolo.torch.names import name_of
from kolo.torch.process_sets import ProcessSet, set_id

_Sum = extension.ReduceOp.Sum
_Average = extension.ReduceOp.Average


def requires_gradient(tensor: torch.Tensor) -> bool:
    """Its requires_grad. TypeError for what is no tensor, such as a number."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"kolo takes tensors, but this is a {type(tensor).__name__}; make one of it: torch.as_tensor(…)")
    return tensor.requires_grad


def has_gradient(tensor: torch.Tensor) -> bool:
    """Whether autograd records what is done with the tensor."""
    return requires_gradient(tensor) and torch.is_grad_enabled()


class WithoutGradient(torch.autograd.Function):
    """A result whose gradient is not defined: backward says so."""

    @staticmethod
    def forward(ctx: Any, result: torch.Tensor, tensor: torch.Tensor, op: Any) -> torch.Tensor:
        ctx.op = op
        return result.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise NotImplementedError(f"the gradient of {ctx.op.name} over ranks is not defined; use Sum or Average, or "
                                  "detach() its result")


class _ScaledGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0] * ctx.factor, None


def scaled_gradient(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    """The tensor, for a call whose gradient is multiplied by the factor."""
    return _ScaledGradient.apply(tensor, factor)  # type: ignore[no-any-return]


class Alltoall(torch.autograd.Function):
    """Returns the rows and how many have come from each rank."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, splits: list[int], name: str | None,
                process_set: ProcessSet) -> tuple[torch.Tensor, torch.Tensor]:
        number = set_id(process_set)
        work = extension.alltoall_async(tensor.detach(), splits, name_of("alltoall", name, number), number)
        output = work.wait()
        ctx.received, ctx.process_set = work.received_splits(), process_set
        received = torch.tensor(ctx.received, dtype=torch.int32)
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return Alltoall.apply(gradients[0], ctx.received, None, ctx.process_set)[0], None, None, None


class GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, op: Any, name: str | None, prescale: float, postscale: float, process_set: ProcessSet,
                *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.op, ctx.factors, ctx.process_set = op, (prescale, postscale), process_set
        number = set_id(process_set)
        works = extension.grouped_allreduce_async([each.detach() for each in tensors], op,
                                                   name_of("grouped_allreduce", name, number), prescale, postscale,
                                                   number)
        return Handle(works, tuple).wait()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        reduced = GroupedAllreduce.apply(ctx.op, None, *ctx.factors, ctx.process_set, *gradients)
        return None, None, None, None, None, *reduced


class GroupedAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, process_set: ProcessSet,
                *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.process_set = process_set
        number = set_id(process_set)
        works = extension.grouped_allgather_async([each.detach() for each in tensors],
                                                   name_of("grouped_allgather", name, number), number)
        outputs = Handle(works, tuple).wait()
        rank = process_set.rank() or 0
        ctx.parts = [(sum(work.received_splits()[:rank]), work.received_splits()[rank]) for work in works]
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        sums = GroupedAllreduce.apply(_Sum, None, 1.0, 1.0, ctx.process_set, *gradients)
        return None, None, *(each.narrow(0, *part) for each, part in zip(sums, ctx.parts, strict=True))


class GroupedReducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, op: Any, name: str | None, prescale: float, postscale: float, process_set: ProcessSet,
                *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.process_set = process_set
        ctx.factor = prescale * postscale / (len(process_set.ranks) if op == _Average else 1)
        number = set_id(process_set)
        works = extension.grouped_reducescatter_async([each.detach() for each in tensors], op,
                                                       name_of("grouped_reducescatter", name, number), prescale,
                                                       postscale, number)
        return Handle(works, tuple).wait()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        gathered = GroupedAllgather.apply(None, ctx.process_set, *gradients)
        return None, None, None, None, None, *(each * ctx.factor for each in gathered)

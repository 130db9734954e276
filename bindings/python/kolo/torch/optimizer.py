"""DistributedOptimizer: an optimizer of torch whose gradients are reduced over the ranks."""
import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from kolo._library import extension
from kolo.torch import compression as compressions
from kolo.torch.functions import Average
from kolo.torch.process_sets import ProcessSet, global_process_set, set_id
from kolo.torch.world import rank

__all__ = ["DistributedOptimizer", "living_optimizers"]

Named = Iterable[tuple[str, torch.Tensor]]
Groups = int | Sequence[Sequence[torch.Tensor]]


class _Distributed:
    """The part of a DistributedOptimizer that comes before the class of the optimizer."""

    param_groups: list[dict[str, Any]]
    _reducer: Any  # None on a rank outside the process set
    _skips: bool
    _origin: Any  # the optimizer that this one was made from
    _process_set: ProcessSet

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Waits for the gradients in flight, then updates. With a closure, waits after each call of it."""
        self._origin._opt_called = True  # for a scheduler that was made from it
        reducer = self._reducer
        if reducer is None:
            return super().step(closure)  # type: ignore[misc]
        if self._skips:
            reducer.skip_next()

        def reduce() -> None:
            reducer.synchronize_for_step()
            if isinstance(self, torch.optim.SparseAdam):  # it takes no others
                _make_sparse(self.param_groups)

        if closure is None:
            reduce()
            return super().step()  # type: ignore[misc]

        def reduced() -> Any:
            loss = closure()
            reduce()
            # A line search must take the same decisions on every rank.
            return reducer.reduce_loss(loss) if isinstance(self, torch.optim.LBFGS) else loss

        return super().step(reduced)  # type: ignore[misc]

    step.hooked = True  # type: ignore[attr-defined]  # hooks of steps run in the optimizer's own step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Ends the operations in flight, then clears the gradients. On all ranks."""
        if self._reducer is not None:
            self._reducer.discard(not set_to_none)
        super().zero_grad(set_to_none)  # type: ignore[misc]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As the optimizer's. On all ranks."""
        super().add_param_group(param_group)  # type: ignore[misc]
        if self._reducer is not None:
            self._reducer.adopt(_tensors_of(self.param_groups))

    def synchronize(self) -> None:
        """Waits for every gradient, also for parameters that backward has not reached on all ranks."""
        if self._reducer is not None:
            self._reducer.synchronize()

    def leave_world(self) -> None:
        """After shutdown(): forgets the ranks, and gradients that they may not all have. Other use is an error then."""
        if self._reducer is not None:
            self._reducer.leave_world()
        super().zero_grad()  # type: ignore[misc]

    def enter_world(self) -> None:
        """In the next world, like the constructor: on all ranks, in the order in which they made their optimizers."""
        self._reducer.enter_world(_tensors_of(self.param_groups))

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it ``step()`` does not wait; ``synchronize()`` has been called before::

            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            with optimizer.skip_synchronize():
                optimizer.step()
        """
        self._skips = True
        try:
            yield
        finally:
            self._skips = False


_made: list[weakref.ref[_Distributed]] = []


def living_optimizers() -> list[_Distributed]:
    """Those that are there, in the order in which they were made."""
    return [each for each in (made() for made in _made) if each is not None]


def _tensors_of(groups: list[dict[str, Any]]) -> list[list[torch.Tensor]]:
    return [list(group["params"]) for group in groups]


def _make_sparse(groups: list[dict[str, Any]]) -> None:
    for parameter in (each for group in groups for each in group["params"]):
        if parameter.grad is not None and not parameter.grad.is_sparse:
            parameter.grad = parameter.grad.to_sparse(1)


def _named(optimizer: torch.optim.Optimizer, named_parameters: Named | None) -> list[tuple[str, torch.Tensor]]:
    if named_parameters is None:
        return [(f"group{number}.parameter{place}", parameter)
                for number, group in enumerate(optimizer.param_groups)
                for place, parameter in enumerate(group["params"])]
    named = list(named_parameters)
    if not all(isinstance(each, tuple) and len(each) == 2 for each in named):
        raise ValueError("named_parameters is a sequence of tuples (name, parameter), as model.named_parameters() "
                         "makes it")
    return named


def _together(groups: Groups | None, num_groups: int) -> int | list[list[torch.Tensor]]:
    if num_groups != 0:
        warnings.warn("num_groups has become groups", DeprecationWarning, stacklevel=3)
        groups = num_groups if groups is None else groups
    if groups is None:
        return 0
    if isinstance(groups, int):
        if groups < 0:
            raise ValueError(f"groups is {groups}; it is a number of groups, or lists of parameters")
        return groups
    lists = [list(group) for group in groups]
    if not all(isinstance(each, torch.Tensor) for group in lists for each in group):
        raise ValueError("groups is a number of groups, or lists of parameters, which are tensors")
    return lists


def DistributedOptimizer(optimizer: torch.optim.Optimizer, named_parameters: Named | None = None,
                         compression: Any = compressions.Compression.none, backward_passes_per_step: int = 1,
                         op: Any = Average, gradient_predivide_factor: float = 1.0, num_groups: int = 0,
                         groups: Groups | None = None, sparse_as_dense: bool = False,
                         process_set: ProcessSet = global_process_set) -> Any:
    """The optimizer, with gradients that are reduced over the ranks while backward runs.

    The result has the optimizer's class among its bases, its groups and its state; the one that was passed is not used
    any more. When ``backward()`` returns, the gradients of all parameters that it has reached on all ranks are reduced.
    ``step()`` waits for the others, and updates.

    Args:
        named_parameters: the names in errors and timelines; default: by group and place.
        compression: ``Compression.fp16``, ``bf16``, or a ``Compressor`` of one's own.
        backward_passes_per_step: number of passes that add up here; the last one starts the reduction. The sum is not
            divided by it.
        op: ``Average``, ``Sum`` or ``Adasum``, which combines gradients.
        gradient_predivide_factor: divides by it before the sum, and by size / factor after. With ``Average``.
        num_groups: the older form of ``groups``.
        groups: which gradients travel together: a number of groups, or lists of parameters.
        sparse_as_dense: makes sparse gradients dense, which then stay so, except for SparseAdam. Otherwise they travel
            sparse, without ``compression``; with ``groups`` or ``Adasum`` they are an error on all ranks.
        process_set: the ranks whose gradients are reduced. On other ranks the optimizer is a plain one.
    """
    if isinstance(optimizer, _Distributed):
        raise ValueError("the optimizer is a DistributedOptimizer already; use it as it is")
    named = _named(optimizer, named_parameters)
    together = _together(groups, num_groups)
    number = set_id(process_set)
    kind: Any = type(type(optimizer).__name__, (_Distributed, type(optimizer)), {})
    distributed = kind.__new__(kind)
    # The instance's step is what a scheduler has put around the plain one.
    distributed.__dict__.update({name: value for name, value in vars(optimizer).items() if name != "step"})
    distributed._skips = False
    distributed._origin = optimizer
    distributed._process_set = process_set
    distributed._reducer = extension.GradientReducer(
        _tensors_of(optimizer.param_groups), named, op, backward_passes_per_step, gradient_predivide_factor,
        compressions.for_gradients(compression), sparse_as_dense, together,
        number) if rank() in process_set.ranks else None
    _made[:] = [made for made in _made if made() is not None] + [weakref.ref(distributed)]
    return distributed

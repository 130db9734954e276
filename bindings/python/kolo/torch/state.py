"""Makes the ranks start alike: parameters, the state of optimizers, objects."""
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from kolo._library import extension
from kolo.torch.process_sets import ProcessSet, global_process_set, set_id

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters",
           "load_optimizer_state"]

T = TypeVar("T")


def broadcast_parameters(params: Mapping[str, torch.Tensor] | Iterable[Any], root_rank: int) -> None:
    """Overwrites every tensor in place with that of rank ``root_rank``.

    Args:
        params: ``model.state_dict()``, ``model.named_parameters()`` or ``model.parameters()``, the same on all ranks.
    """
    if isinstance(params, torch.Tensor | str | bytes) or not isinstance(params, Iterable):
        raise ValueError(f"broadcast_parameters takes a state_dict, or a list of parameters, not {type(params).__name__}")
    items = list(params.items()) if isinstance(params, Mapping) else list(params)
    named = [each if isinstance(each, tuple) else (f"parameter {number}", each) for number, each in enumerate(items)]
    for name, tensor in named:
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"broadcast_parameters: '{name}' is no tensor but {type(tensor).__name__}; give it to "
                             "broadcast_object()")
    extension.broadcast_parameters(named, root_rank)


def _packed(value: Any) -> tuple[bytes, str]:
    """A value's bytes, or why it has none."""
    try:
        return pickle.dumps(value), ""
    except Exception as error:
        return b"", f"{type(value).__name__} cannot be pickled: {error}"


def broadcast_object(obj: T, root_rank: int = 0, name: str | None = None,
                     process_set: ProcessSet = global_process_set) -> T:
    """The object of rank ``root_rank``, which is pickled. The others' objects are not read."""
    is_root = extension.rank() == root_rank
    content, failure = _packed(obj) if is_root else (b"", "")
    content = extension.broadcast_bytes(content, failure, root_rank, name or "", set_id(process_set))
    return obj if is_root else pickle.loads(content)


def allgather_object(obj: T, name: str | None = None, process_set: ProcessSet = global_process_set) -> list[T]:
    """The objects of all ranks, in rank order. They are pickled."""
    contents = extension.allgather_bytes(*_packed(obj), name or "", set_id(process_set))
    return [pickle.loads(content) for content in contents]


@dataclass
class _Place:
    """Where a tensor was in a state."""

    number: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str


def _taken_out(value: Any, tensors: list[torch.Tensor]) -> Any:
    """The value with a place for each tensor, which is appended to the list."""
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return _Place(len(tensors) - 1, tuple(value.shape), value.dtype, value.device.type)
    if isinstance(value, dict):
        return {key: _taken_out(each, tensors) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_taken_out(each, tensors) for each in value)
    return value


def _places(value: Any) -> list[_Place]:
    if isinstance(value, _Place):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if type(value) in (list, tuple) else ()
    return [place for part in parts for place in _places(part)]


def _put_back(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, _Place):
        return tensors[value.number]
    if isinstance(value, dict):
        return {key: _put_back(each, tensors) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_put_back(each, tensors) for each in value)
    return value


def _check_groups(optimizer: torch.optim.Optimizer, root_rank: int) -> None:
    """ValueError on all ranks if a rank's parameters differ from the root's."""
    mine = [[tuple(parameter.shape) for parameter in group["params"]] for group in optimizer.param_groups]
    everyone = allgather_object(mine, "broadcast_optimizer_state/groups")
    for rank, theirs in enumerate(everyone):
        if theirs != everyone[root_rank]:
            raise ValueError(f"broadcast_optimizer_state: the parameters of rank {rank}'s optimizer have the shapes "
                             f"{theirs} by group, but those of rank {root_rank}, the root, have {everyone[root_rank]}; "
                             "make the same optimizer on all ranks")


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None) -> None:
    """Copies the state and options of rank ``root_rank``'s optimizer to every rank's.

    No step is taken: the root's optimizer stays as it is, bit for bit. It works where a rank had no state yet, or the
    root has none.

    Args:
        model: has no effect; it is there for Horovod's callers.
    """
    if not 0 <= root_rank < extension.size():
        raise ValueError(f"broadcast_optimizer_state: root_rank is {root_rank}; it is 0 to {extension.size() - 1}")
    _check_groups(optimizer, root_rank)
    is_root = extension.rank() == root_rank
    tensors: list[torch.Tensor] = []
    state = broadcast_object(_taken_out(optimizer.state_dict(), tensors) if is_root else None, root_rank,
                             "broadcast_optimizer_state")
    if not is_root:
        tensors = [torch.empty(place.shape, dtype=place.dtype, device=place.device) for place in _places(state)]
    extension.broadcast_parameters([(f"optimizer state {number}", tensor) for number, tensor in enumerate(tensors)],
                                    root_rank)
    if is_root:
        return
    load_optimizer_state(optimizer, _put_back(state, tensors))


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """As ``load_state_dict``. Schedulers and the optimizer that this one was made from keep the groups that they know."""
    groups = optimizer.param_groups
    optimizer.load_state_dict(state)
    for known, loaded in zip(groups, optimizer.param_groups, strict=True):
        known.update(loaded)
    optimizer.param_groups = groups

"""What the ranks of an elastic job have alike, and go back to."""
import copy
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from kolo._library import extension
from kolo.torch.elastic.sampler import ElasticSampler
from kolo.torch.state import broadcast_object, broadcast_optimizer_state, broadcast_parameters, load_optimizer_state

__all__ = ["HostsUpdatedInterrupt", "ObjectState", "State", "TorchState"]

_ASKS_EVERY = 0.1  # seconds: how often rank 0 asks the launcher for processes that wait


class HostsUpdatedInterrupt(RuntimeError):
    """Leaves the function that ``run`` calls, as processes wait for the next world. Let it pass."""


class State:
    """Base class for a state of one's own, with ``save``, ``restore`` and ``sync``."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], None]] = []
        self._commits = 0
        self._root = 0  # the rank whose state sync() gives to all
        self._runs = False  # within run() of an elastic job
        self._asks_at = 0.0

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Calls these in each further world, on ranks that had the state before, and before ``sync()``: to adapt a
        learning rate to ``size()``. They call no collectives, as new ranks do not call them."""
        self._callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """What ``run`` calls in each further world on ranks that had the state."""
        self.reset()
        for callback in self._callbacks:
            callback()

    def commit(self) -> None:
        """Saves the state, to which all go back when a rank is lost, and looks for new processes. On all ranks."""
        self.save()
        self._commits += 1
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises ``HostsUpdatedInterrupt`` if processes wait for the next world. On all ranks."""
        if not self._runs:
            return
        asks = extension.rank() == 0 and time.monotonic() >= self._asks_at
        if asks:
            self._asks_at = time.monotonic() + _ASKS_EVERY
        if extension.newcomers_wait(asks):
            raise HostsUpdatedInterrupt("processes wait for the next world; let this pass to elastic.run")

    def save(self) -> None:
        """Copies the state, in one piece: after a failure within it the last copy is whole."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to the last copy."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives rank 0's state to all, and saves it. Collective."""
        raise NotImplementedError

    def reset(self) -> None:
        """For classes with something to do in each further world."""


class ObjectState(State):
    """Objects, each an attribute. They can be pickled and copied.

    ::

        state = ObjectState(epoch=0, losses=[])
        state.losses.append(0.5)
        state.commit()
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        self._names = list(kwargs)
        for name, value in kwargs.items():
            setattr(self, name, value)
        self._saved = copy.deepcopy(kwargs)

    def save(self) -> None:
        self._saved = copy.deepcopy(self._values())

    def restore(self) -> None:
        self._take(copy.deepcopy(self._saved))

    def sync(self) -> None:
        self._take(broadcast_object(self._values(), self._root))
        self.save()

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._names}

    def _take(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)


class TorchState(ObjectState):
    """Models, optimizers, schedulers, scalers and an ``ElasticSampler``, which have a ``state_dict()``; and other objects.

    ::

        state = TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, batch=0)

    Each is an attribute. ``save()``, and so ``commit()``, copies all of it, and is collective where a sampler is in it.
    """

    def __init__(self, model: torch.nn.Module | None = None, optimizer: torch.optim.Optimizer | None = None,
                 **kwargs: Any) -> None:
        given = {"model": model, "optimizer": optimizer, **kwargs}
        parts = {name: value for name, value in given.items() if hasattr(value, "load_state_dict")}
        super().__init__(**{name: value for name, value in given.items() if name not in parts})
        for name, value in parts.items():
            setattr(self, name, value)
        self._copies: dict[str, Any] = dict.fromkeys(parts)
        self._copy_parts()

    def save(self) -> None:
        for sampler in self._samplers():
            sampler.exchange()
        # Nothing fails from here on, so all copies are of one moment.
        self._copy_parts()
        super().save()

    def restore(self) -> None:
        for name, saved in self._copies.items():
            _load(getattr(self, name), _copy(saved))
        super().restore()

    def sync(self) -> None:
        for sampler in self._samplers():
            sampler.exchange()
        for name in self._copies:
            _broadcast(getattr(self, name), self._root)
        super().sync()

    def _samplers(self) -> list[ElasticSampler]:
        return [part for part in (getattr(self, name) for name in self._copies) if isinstance(part, ElasticSampler)]

    def _copy_parts(self) -> None:
        for name, old in self._copies.items():
            self._copies[name] = _copy(getattr(self, name).state_dict(), old)


def _copy(value: Any, old: Any = None) -> Any:
    """A copy, in the memory of an old one where that fits."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        fits = isinstance(old, torch.Tensor) and (old.shape, old.dtype, old.device, old.layout) == (
            value.shape, value.dtype, value.device, value.layout)
        return old.copy_(value) if fits else value.clone()
    if isinstance(value, dict):
        olds = old if isinstance(old, dict) else {}
        return {key: _copy(each, olds.get(key)) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copy(each) for each in value)
    return copy.deepcopy(value)


def _load(part: Any, state: Any) -> None:
    if isinstance(part, torch.optim.Optimizer):
        load_optimizer_state(part, state)
    else:
        part.load_state_dict(state)


def _broadcast(part: Any, root: int) -> None:
    if isinstance(part, torch.nn.Module):
        broadcast_parameters(part.state_dict(), root)
    elif isinstance(part, torch.optim.Optimizer):
        broadcast_optimizer_state(part, root)
    else:
        part.load_state_dict(broadcast_object(part.state_dict(), root))

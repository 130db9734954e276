"""Handles on operations in flight."""
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import torch

__all__ = ["Handle", "poll", "synchronize"]

R = TypeVar("R")


class _Work(Protocol):
    def done(self) -> bool: ...
    def wait(self) -> torch.Tensor: ...


class Handle(Generic[R]):
    """An operation in flight, for ``poll()`` and ``synchronize()``. Used by one thread at a time.

    Calling it is ``synchronize()``.
    """

    __slots__ = ("_finish", "_works")

    def __init__(self, works: Sequence[_Work], finish: Callable[[list[torch.Tensor]], R]) -> None:
        self._works = works
        self._finish = finish

    def done(self) -> bool:
        return all(work.done() for work in self._works)

    def wait(self) -> R:
        """The result. All parts have ended when the failure of one is raised."""
        failure: Exception | None = None
        results = []
        for work in self._works:
            try:
                results.append(work.wait())
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return self._finish(results)

    __call__ = wait


def only(results: list[torch.Tensor]) -> torch.Tensor:
    """The result of an operation that has one."""
    return results[0]


def poll(handle: Handle[R]) -> bool:
    """Whether the operation has ended; never blocks."""
    return handle.done()


def synchronize(handle: Handle[R]) -> R:
    """Waits for the operation and returns its result, or raises its failure. May be called again."""
    return handle.wait()

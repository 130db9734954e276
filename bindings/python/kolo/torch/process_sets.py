"""Process sets: ranks that run collectives among themselves."""
from collections.abc import Iterable

from kolo._library import extension


__all__ = ["ProcessSet", "add_process_set", "global_process_set", "remove_process_set"]


class ProcessSet:
    """Some ranks of the world, for ``process_set=`` of collectives and ``DistributedOptimizer``.

    ``init(process_sets=[…])`` or ``add_process_set()`` registers it. Roots are ranks of the world in
    every process set.

    Attributes:
        process_set_id: its number; ``None`` while it is not registered.
        ranks: ranks of the world, ascending.
    """

    process_set_id: int | None
    ranks: list[int]

    def __init__(self, ranks: Iterable[int]) -> None:
        try:
            self.ranks = sorted(ranks)
        except TypeError:
            raise ValueError(f"ProcessSet takes the ranks as a list of integers, not {ranks!r}; of an MPI "
                             "communicator pass the ranks of its members") from None
        if not all(isinstance(rank, int) for rank in self.ranks):
            raise ValueError(f"ProcessSet takes the ranks as a list of integers, not {self.ranks}")
        self.process_set_id = None

    def size(self) -> int | None:
        """Number of its ranks; ``None`` while it is not registered."""
        return None if self.process_set_id is None else len(self.ranks)

    def rank(self) -> int | None:
        """This process's place in ``ranks``; ``None`` while it is not registered. ValueError if this
        process is not one of them."""
        if self.process_set_id is None:
            return None
        if not self.included():
            raise ValueError(f"rank {extension.rank()} is not in {self}")
        return self.ranks.index(extension.rank())

    def included(self) -> bool | None:
        """Whether this process is one of its ranks; ``None`` while it is not registered."""
        return None if self.process_set_id is None else extension.rank() in self.ranks

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


#: All ranks.
global_process_set = ProcessSet([])
global_process_set.process_set_id = 0

_registered: list[ProcessSet] = []


def set_id(process_set: ProcessSet) -> int:
    """The number of a registered process set; ValueError for another."""
    if process_set.process_set_id is None:
        raise ValueError(f"{process_set} is not registered: pass it to init(process_sets=…) or add_process_set()")
    return process_set.process_set_id


def register(process_sets: Iterable[ProcessSet]) -> None:
    """Gives these sets the numbers that kolo has for their ranks. Right after init()."""
    known = extension.process_sets()
    global_process_set.ranks = known[0]
    numbers = {tuple(ranks): number for number, ranks in known.items()}
    for process_set in process_sets:
        process_set.process_set_id = numbers[tuple(process_set.ranks)]
        _registered.append(process_set)


def forget_all() -> None:
    """Unregisters every set, as shutdown() does."""
    while _registered:
        _registered.pop().process_set_id = None
    global_process_set.ranks = []


def add_process_set(process_set: ProcessSet | Iterable[int]) -> ProcessSet:
    """Registers a process set and returns it. Called by every rank of the world, with the same ranks.

    ValueError if these ranks have a process set already, or are not ranks of the world.
    """
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    process_set.process_set_id = extension.add_process_set(process_set.ranks)
    _registered.append(process_set)
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Unregisters a process set. Called by every rank of the world.

    False for one that is not registered, and for the global one, which stays.
    """
    if not process_set.process_set_id:
        return False
    extension.remove_process_set(process_set.process_set_id)
    process_set.process_set_id = None
    _registered.remove(process_set)
    return True

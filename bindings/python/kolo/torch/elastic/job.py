"""run(): calls a function in one world after the other."""
import functools
import os
import socket
import warnings
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from kolo._library import extension
from kolo.errors import KoloError
from kolo.torch import world
from kolo.torch.elastic.state import HostsUpdatedInterrupt, ObjectState, State, TorchState
from kolo.torch.optimizer import living_optimizers
from kolo.torch.process_sets import global_process_set
from kolo.torch.state import allgather_object

__all__ = ["run"]

P = ParamSpec("P")
S = TypeVar("S", bound=State)
T = TypeVar("T")

_MOST_FUTILE = 3  # losses in a row among the same processes, without a commit


def run(func: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Decorates a function ``train(state, …)``: it is called in one world after the other, until it returns.

    All begin with rank 0's state. Where no further world can be made (mpirun, srun, torchrun, kolo-run without
    ``--min-np``, ranks that meet at rank 0), it is called once, after rank 0 has said why, and the loss of a rank is
    raised.

    Raises:
        KoloError: if no further world can be made, or all ranks that had the state are gone: begin anew from a
            checkpoint; or if a loss repeats among the same processes without a commit.
    """

    @functools.wraps(func)
    def wrapper(state: S, *args: P.args, **kwargs: P.kwargs) -> T:
        extension.newcomers()  # from now on this program goes on
        if extension.membership()[0]:
            return Job(state).run(lambda: func(state, *args, **kwargs))
        if extension.rank() == 0 and extension.size() > 1:
            warnings.warn(f"kolo: elastic.run: the loss of a rank ends this job: {extension.why_not_elastic()}",
                          RuntimeWarning, stacklevel=2)
        state.sync()
        return func(state, *args, **kwargs)

    return wrapper


def _me() -> tuple[str, int]:
    return socket.gethostname(), os.getpid()


class Job:
    """This process in an elastic job."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._has_state = extension.membership()[1] > 0  # others train already if not
        self._has_restored = False  # since all had the same state
        self._members: object = None  # processes of this world
        self._last_loss: object = None
        self._futile = 0
        self._optimizers = living_optimizers()
        for optimizer in self._optimizers:
            if optimizer._process_set is not global_process_set:
                raise ValueError("elastic.run: an optimizer reduces over a process set, whose ranks have weights of "
                                 "their own, and the next world has other ranks; use one over all ranks, or make it "
                                 "within the function")

    def run(self, train: Callable[[], T]) -> T:
        enters = not self._has_state
        self._state._runs = True
        try:
            while True:
                try:
                    if enters:
                        self._enter_next_world()
                    self._agree(enters)
                    self._share()
                    if enters:
                        for optimizer in self._optimizers:
                            optimizer.enter_world()
                    return train()
                except HostsUpdatedInterrupt:
                    pass
                except RuntimeError:  # a KoloError, or what the program has made of it
                    loss = extension.loss()
                    if loss is None or self._is_futile():
                        raise
                    self._go_back(loss)
                enters = True
        finally:
            self._state._runs = False

    def _enter_next_world(self) -> None:
        world.shutdown()
        for optimizer in living_optimizers():
            optimizer.leave_world()
        self._members = None
        world.enter_next_world()

    def _agree(self, is_further: bool) -> None:
        """Whose state all take, and that it is that of one moment."""
        everyone = allgather_object((_me(), self._has_state, self._has_restored))
        self._members = [process for process, _, _ in everyone]
        with_state = [rank for rank, (_, has_state, _) in enumerate(everyone) if has_state]
        if not with_state:
            raise KoloError("elastic.run: all ranks that had the training's state are gone; begin anew from a checkpoint",
                            "peer lost")
        self._state._root = with_state[0]
        if not is_further or not self._has_state:
            return
        # Some have left at a commit and others have gone back to one, if a rank was lost just then.
        if not self._has_restored and any(has_restored for _, _, has_restored in everyone):
            self._state.restore()
        self._state.on_reset()

    def _share(self) -> None:
        state = self._state
        if state._root != 0 and type(state).sync not in (ObjectState.sync, TorchState.sync):
            raise KoloError(f"elastic.run: rank 0 is new and has no state: ranks were lost while it got one. Rank "
                            f"{state._root} has it, but sync() of {type(state).__name__} gives rank 0's to all; begin anew "
                            "from a checkpoint", "peer lost")
        state.sync()
        self._has_state = True
        self._has_restored = False

    def _is_futile(self) -> bool:
        loss = (self._state._commits, self._members)
        self._futile = self._futile + 1 if loss == self._last_loss else 1
        self._last_loss = loss
        return self._futile == _MOST_FUTILE

    def _go_back(self, loss: str) -> None:
        warnings.warn(f"kolo: elastic.run: {loss}; going on with the others from the last commit", RuntimeWarning,
                      stacklevel=4)
        if self._has_state:
            self._state.restore()
            self._has_restored = True

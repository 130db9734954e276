"""The end of the interpreter is that of kolo's world, too."""
import atexit
import functools
import os
import sys

from kolo._library import extension
from kolo.errors import KoloError

__all__ = ["end_at_exit"]


@functools.cache
def end_at_exit() -> None:
    """To be called before a world begins: what still runs when the program ends fails then, while the interpreter
    lives. A thread that lets a tensor go or calls back later would end the process by a signal."""
    atexit.register(_end, os.getpid())


def _end(process: int) -> None:
    """The other ranks learn why this one ends."""
    if os.getpid() != process:  # forked
        return
    error = getattr(sys, "last_value", None)
    is_own = error is not None and not isinstance(error, KoloError) and extension.is_initialized()
    if is_own and not extension.membership()[0]:  # an elastic job goes on without this rank
        extension.abort(f"its program ended by {type(error).__name__}: {error}".removesuffix(": "))
    extension.end_with_interpreter()

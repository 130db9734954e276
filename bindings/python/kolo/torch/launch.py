"""Calls a function on several ranks."""
import pathlib
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import kolo

__all__ = ["run"]

T = TypeVar("T")
_KOLO_RUN = pathlib.Path(kolo.__path__[0], "bin", "kolo-run")


def run(func: Callable[..., T], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, np: int = 1,
        env: Mapping[str, str] | None = None) -> list[T]:
    """Calls ``func(*args, **kwargs)`` on ``np`` ranks of this host, and returns what they return, in rank order.

    Each rank is a new process. The function and its arguments are pickled, so the function is one of a module that can
    be imported. It calls ``init()`` itself.

    Args:
        env: the environment of the ranks; default: this process's.
    """
    if func.__module__ == "__main__":
        raise ValueError(f"run({func.__qualname__}): new processes cannot import it from __main__; put it in a module")
    with tempfile.TemporaryDirectory(prefix="kolo-run-") as folder:
        call = pickle.dumps((func, tuple(args), dict(kwargs or {})))
        pathlib.Path(folder, "call").write_bytes(pickle.dumps((sys.path, call)))
        done = subprocess.run([str(_KOLO_RUN), "-np", str(np), sys.executable, "-m", "kolo.torch.launched", folder],
                              check=False, env=env)
        if done.returncode != 0:
            raise RuntimeError(f"run({func.__qualname__}, np={np}): the ranks have ended with exit status "
                               f"{done.returncode}; they or kolo-run have written why")
        return [pickle.loads(pathlib.Path(folder, f"result.{rank}").read_bytes()) for rank in range(np)]

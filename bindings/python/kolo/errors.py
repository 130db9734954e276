"""The exception of kolo's calls."""
import functools

import torch.distributed

__all__ = ["KoloArgumentError", "KoloError"]

# The latest exception of code that kolo has called, until kolo's own error tells of it; and its first line.
_raised: list[tuple[Exception, str]] = []


def note_cause(error: Exception) -> None:
    """Code that kolo has called has raised this: it becomes the cause of the KoloError whose text has its first line."""
    _raised[:] = [(error, f"{type(error).__name__}: {error}".split("\n", maxsplit=1)[0].strip())]


class KoloError(torch.distributed.DistBackendError):
    """A call of kolo that failed: its text names the rank, the tensor, both values and what to do.

    A ``RuntimeError`` and a ``torch.distributed.DistBackendError``.

    Where a ``Compressor`` of one's own has raised, that exception is the ``__cause__``.

    Attributes:
        code: what kind of failure it is: ``"peer lost"``, ``"timeout"``, ``"mismatch"``, …
    """

    code: str

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        if _raised and _raised[0][1] in message:
            self.__cause__ = _raised.pop()[0]

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return _lasting(type(self)), (str(self), self.code)


class KoloArgumentError(KoloError, ValueError):
    """A call of kolo with an argument that can never work: a ``ValueError`` as well."""


def _lasting(kind: type[KoloError]) -> type[KoloError]:
    return KoloArgumentError if issubclass(kind, KoloArgumentError) else KoloError


@functools.cache
def class_of(code: str) -> type[KoloError]:
    """The class whose instances have this code: torch's C++ makes an exception of a class and a text alone."""
    base = KoloArgumentError if code == "invalid argument" else KoloError
    return type(base.__name__, (base,), {"__module__": __name__, "__doc__": base.__doc__, "code": code})

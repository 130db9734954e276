"""The exception of kolo's calls."""
import functools

import torch.distributed

__all__ = ["KoloArgumentError", "KoloError"]


class KoloError(torch.distributed.DistBackendError):
    """A call of kolo that failed: its text names the rank, the tensor, both values and what to do.

    A ``RuntimeError`` and a ``torch.distributed.DistBackendError``.

    Attributes:
        code: what kind of failure it is: ``"peer lost"``, ``"timeout"``, ``"mismatch"``, …
    """

    code: str

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code

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

"""The exception of kolo's calls."""
import torch.distributed

__all__ = ["KoloArgumentError", "KoloError"]


class KoloError(torch.distributed.DistBackendError):
    """A call of kolo that failed: its text names the rank, the tensor, both values and what to do.

    A ``RuntimeError`` and a ``torch.distributed.DistBackendError``.

    Attributes:
        code: what kind of failure it is: ``"peer lost"``, ``"timeout"``, ``"mismatch"``, …
    """

    code: str

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (str(self), self.code)


class KoloArgumentError(KoloError, ValueError):
    """A call of kolo with an argument that can never work: a ``ValueError`` as well."""

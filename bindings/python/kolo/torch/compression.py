"""Compression of tensors while they travel."""
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from kolo.errors import note_cause

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class Compressor:
    """Base class for a compression of one's own. All ranks use the same."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The tensor that travels, of the same shape, and what ``decompress`` needs besides."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """The tensor in its own type again."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Tensors travel as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


class _HalfCompressor(Compressor):
    _half: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return (tensor.to(cls._half) if tensor.dtype.is_floating_point else tensor), tensor.dtype

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx)


class FP16Compressor(_HalfCompressor):
    """Floating tensors travel as float16; their sums are computed in float32."""

    _half = torch.float16


class BF16Compressor(_HalfCompressor):
    """Floating tensors travel as bfloat16; their sums are computed in float32."""

    _half = torch.bfloat16


class Compression:
    """Compressions to choose from."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


_OWN = {NoneCompressor: None, FP16Compressor: "fp16", BF16Compressor: "bf16"}


@contextmanager
def _causes() -> Iterator[None]:
    """The extension passes on the text alone of what is raised."""
    try:
        yield
    except Exception as error:
        note_cause(error)
        raise


class _GradientCompressor:
    """A compressor of Python, as the extension calls it for gradients."""

    def __init__(self, compressor: Any) -> None:
        self._compressor = compressor
        self._contexts: dict[str, Any] = {}

    @_causes()
    def wire_type(self, dtype: torch.dtype) -> torch.dtype:
        wire: torch.Tensor = self._compressor.compress(torch.zeros(1, dtype=dtype))[0]
        return wire.dtype

    @_causes()
    def compress(self, name: str, gradient: torch.Tensor) -> torch.Tensor:
        wire: torch.Tensor
        wire, self._contexts[name] = self._compressor.compress(gradient)
        return wire

    @_causes()
    def decompress(self, name: str, wire: torch.Tensor, gradient: torch.Tensor) -> None:
        if name in self._contexts:
            context = self._contexts.pop(name)
        else:  # other ranks had this gradient
            context = self._compressor.compress(torch.zeros_like(gradient))[1]
        gradient.copy_(self._compressor.decompress(wire, context))


def for_gradients(compression: Any) -> str | _GradientCompressor | None:
    """What the extension takes for gradients: the name of a compression of kolo's, or an object."""
    kind: Callable[..., Any] = compression if isinstance(compression, type) else type(compression)
    return _OWN[kind] if kind in _OWN else _GradientCompressor(compression)

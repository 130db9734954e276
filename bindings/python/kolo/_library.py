"""Loads the extension, beside the torch that it was built for."""
import importlib
from types import ModuleType

from kolo._build import TORCH_VERSION, VERSION


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def load() -> ModuleType:
    """The extension module. ImportError if it is for another torch."""
    import torch  # first: it loads the libraries that the extension needs

    if _minor(torch.__version__) != _minor(TORCH_VERSION):
        raise ImportError(
            f"kolo {VERSION} was built for torch {_minor(TORCH_VERSION)}, and torch {torch.__version__} is "
            "installed: install kolo again, which builds it for that one (pip install --force-reinstall --no-deps "
            "<kolo's sources>/bindings/python)")
    return importlib.import_module("kolo._extension")

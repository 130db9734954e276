"""What kolo has in C++, loaded beside the torch that it was built for. ImportError if that is another one."""
import torch  # first: it loads the libraries that the extension needs

from kolo._build import TORCH_VERSION, VERSION


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


if _minor(torch.__version__) != _minor(TORCH_VERSION):
    raise ImportError(
        f"kolo {VERSION} was built for torch {_minor(TORCH_VERSION)}, and torch {torch.__version__} is "
        "installed: install kolo again, which builds it for that one (pip install --force-reinstall --no-deps "
        "<kolo's sources>/bindings/python)")

from kolo import _extension as extension  # noqa: E402

__all__ = ["extension"]

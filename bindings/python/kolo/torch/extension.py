"""What kolo has in C++, loaded beside the torch that it was built for."""
from kolo import _library

_library.load()

from kolo import _extension as extension  # noqa: E402

__all__ = ["extension"]

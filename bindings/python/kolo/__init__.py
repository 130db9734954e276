"""kolo: data-parallel training over shared memory and UCX.

``import kolo.c10d`` (or nothing at all: torch finds the entry point) makes
``torch.distributed.init_process_group("kolo")`` work. ``import kolo.torch as hvd`` is Horovod's
interface. ``kolo-run``, ``kolo-info``, ``kolo-perf``, ``kolo-simulate`` and ``kolo-timeline`` are
installed as commands; ``python -m kolo.info`` is ``kolo-info``.
"""
from kolo._build import VERSION as __version__

__all__ = ["__version__"]

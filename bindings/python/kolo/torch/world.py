"""The world of ranks: start, end, and what a rank is told about itself."""
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kolo._at_exit import end_at_exit
from kolo._library import extension
from kolo.torch import process_sets as sets
from kolo.torch.names import forget_names
from kolo.torch.process_sets import ProcessSet


@dataclass(frozen=True)
class _World:
    """What a rank knows about itself, also in the processes that it forks."""

    process: int
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    is_homogeneous: bool


_world: _World | None = None


def init(comm: Any = None, process_sets: Sequence[ProcessSet | Sequence[int]] | str | None = None) -> None:
    """Finds the other ranks and connects to them. No effect if kolo is initialised already.

    The ranks come from kolo-run, torchrun, mpirun or srun; without a launcher this is a world of one.

    Args:
        comm: a communicator of mpi4py whose ranks take part. Default: all ranks that were launched.
        process_sets: sets that exist from the start, the same on every rank. ``"dynamic"`` has no
            effect: process sets can always be added.
    """
    if isinstance(process_sets, str):
        if process_sets != "dynamic":
            raise ValueError(f"process_sets={process_sets!r}: a list of process sets, or 'dynamic'")
        process_sets = None
    wanted = [each if isinstance(each, ProcessSet) else ProcessSet(each) for each in process_sets or []]
    address = None if comm is None else _address_of(comm)
    if not extension.is_initialized():
        _forget()
        extension.init([each.ranks for each in wanted], address)
    elif wanted:
        raise ValueError("init(process_sets=…): kolo is initialised already; use add_process_set()")
    end_at_exit()
    if _world is None:
        _learn(wanted)


def _learn(wanted: Sequence[ProcessSet]) -> None:
    """What this rank keeps of a world that has just begun. Collective."""
    global _world
    sets.register(wanted)
    mine = str(extension.local_size()).encode()
    sizes = extension.allgather_bytes(mine, "", "local sizes", 0)
    _world = _World(os.getpid(), extension.rank(), extension.size(), extension.local_rank(), extension.local_size(),
                    extension.cross_rank(), extension.cross_size(), len(set(sizes)) == 1)


def _forget() -> None:
    global _world
    _world = None
    sets.forget_all()
    forget_names()


def _address_of(comm: Any) -> int:
    try:
        from mpi4py import MPI
    except ImportError:
        MPI = None
    if MPI is None or not isinstance(comm, MPI.Comm):
        raise ValueError(f"init(comm={comm!r}): it is a communicator of mpi4py; for some of the ranks use "
                         "init(process_sets=[ProcessSet(ranks)])")
    return int(MPI._addressof(comm))


def shutdown() -> None:
    """Ends this rank's part: operations in flight fail. The end of the process does it, too."""
    extension.shutdown()
    _forget()


def enter_next_world() -> None:
    """In an elastic job, after shutdown(): like init(), with all other living processes. Waits for them."""
    extension.enter_next_world()
    _learn([])


def is_initialized() -> bool:
    """Whether ``init()`` has been called, and ``shutdown()`` has not."""
    return extension.is_initialized()


def _known(call: str) -> _World:
    """What init() has told this process, or the one that has forked it. ValueError if there is nothing."""
    if _world is None or (_world.process == os.getpid() and not extension.is_initialized()):
        raise ValueError(f"{call}(): kolo is not initialised; call init() first")
    return _world


def rank() -> int:
    """This process's number, 0 … size() − 1."""
    return _known("rank").rank


def size() -> int:
    """Number of processes."""
    return _known("size").size


def local_rank() -> int:
    """This process's number among those of its host."""
    return _known("local_rank").local_rank


def local_size() -> int:
    """Number of processes on this host."""
    return _known("local_size").local_size


def cross_rank() -> int:
    """Number of this host among the hosts that have this local rank."""
    return _known("cross_rank").cross_rank


def cross_size() -> int:
    """Number of hosts that have this local rank."""
    return _known("cross_size").cross_size


def is_homogeneous() -> bool:
    """Whether every host has the same number of ranks."""
    return _known("is_homogeneous").is_homogeneous


def mpi_threads_supported() -> bool:
    """False: after ``init()``, kolo calls MPI at exit alone."""
    _known("mpi_threads_supported")
    return False


def mpi_enabled() -> bool:
    """Whether MPI has brought the ranks together."""
    return extension.is_initialized() and extension.rendezvous().lower().startswith("mpi")


def mpi_built() -> bool:
    """Whether kolo is built with MPI."""
    return extension.mpi_built()


def gloo_enabled() -> bool:
    """False: kolo does without gloo."""
    return False


def gloo_built() -> bool:
    """False: kolo does without gloo."""
    return False


def nccl_built() -> bool:
    """Whether kolo can use NCCL."""
    return extension.nccl_built()


def ddl_built() -> bool:
    """False: kolo does without IBM's DDL."""
    return False


def ccl_built() -> bool:
    """False: kolo does without Intel's oneCCL."""
    return False


def cuda_built() -> bool:
    """Whether kolo is built with CUDA."""
    return extension.cuda_built()


def rocm_built() -> bool:
    """False: kolo does without ROCm."""
    return False


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Records what this rank does from now on, as ``KOLO_TIMELINE`` does from the start of a run.

    Each rank that calls it has a file of its own: ``%r`` in the path becomes the rank; without it, and with several
    ranks, ``.rank`` is put before the extension.

    Raises:
        KoloError: this rank keeps a timeline already, or the path is no file that can be written to.
    """
    if mark_cycles:
        raise NotImplementedError("start_timeline(mark_cycles=True): kolo has no cycle time, so there are no cycles to "
                                  "mark; leave it out")
    extension.start_timeline(os.fspath(file_path))


def stop_timeline() -> None:
    """Completes the file. KoloError if this rank keeps no timeline."""
    extension.stop_timeline()

"""What the checks of hvd_*.py share: the world that they run in, data, comparisons."""
import os
import sys

import kolo.torch as hvd
import torch

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int32, torch.int64)
TYPES = FLOATS + INTEGERS
SHAPES = ((17,), (5, 7), (3, 4, 5))
sets = {}  # process sets by name


def run(part, checks):
    """Calls functions in a world of their own; a failure ends this rank, and so the job."""
    hvd.init()
    torch.manual_seed(4)
    make_sets()
    for check in checks:
        try:
            check()
        except Exception:
            print(f"rank {os.environ.get('RANK', 0)}: {part}: {check.__name__} has failed", file=sys.stderr, flush=True)
            raise
        hvd.barrier()
    print(f"rank {hvd.rank()} of {hvd.size()}: {len(checks)} checks of {part} are done", flush=True)
    hvd.shutdown()


def make_sets():
    """The ranks of each parity; a single rank has the world."""
    sets["even"] = hvd.add_process_set(range(0, hvd.size(), 2)) if hvd.size() > 1 else hvd.global_process_set
    if hvd.size() > 1:
        sets["odd"] = hvd.add_process_set(range(1, hvd.size(), 2))


def mine():
    """The process set of this rank's parity."""
    return sets["even" if hvd.rank() % 2 == 0 else "odd"]


def data(shape, dtype=torch.float32, rank=None, seed=0):
    """Small integers, which every type has, different on each rank."""
    rank = hvd.rank() if rank is None else rank
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randint(0, 4, shape, generator=generator).to(dtype)


def everyone(shape, dtype=torch.float32, ranks=None, seed=0):
    """What data() gives on each rank."""
    return torch.stack([data(shape, dtype, rank, seed) for rank in (range(hvd.size()) if ranks is None else ranks)])


def expect(got, wanted, about=""):
    assert isinstance(got, torch.Tensor) and got.dtype == wanted.dtype and got.shape == wanted.shape, \
        f"{about}: {got} instead of {wanted}"
    close = torch.allclose(got.double(), wanted.double(), rtol=1e-2 if got.element_size() == 2 else 1e-4,
                           atol=1e-4)
    assert close, f"rank {hvd.rank()}: {about}: {got} instead of {wanted}"


def raises(kind, call, *words):
    """The exception, whose text has these words."""
    try:
        call()
    except kind as error:
        for word in words:
            assert str(word) in str(error), f"rank {hvd.rank()}: {word!r} is not in: {error}"
        return error
    raise AssertionError(f"rank {hvd.rank()}: no {kind}")

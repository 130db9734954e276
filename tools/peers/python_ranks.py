"""A rank of tools/bench python: all_reduce of each library from Python, in turn. Rank 0 prints JSON.

Environment: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or Open MPI's in place of the first two.
"""
import argparse
import datetime
import json
import os
import sys
import time

for name, of_mpi in (("RANK", "OMPI_COMM_WORLD_RANK"), ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"),
                     ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")):
    if of_mpi in os.environ:
        os.environ.setdefault(name, os.environ[of_mpi])

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

MOST_AGGREGATED = 50  # calls in a sample, of the smallest size
AGGREGATED_BYTES = 4 << 20  # that the calls of a sample have together at most
WARM_UP = 3  # samples


class Calls:
    """The libraries, each as a call that sums a tensor over the ranks in place."""

    def __init__(self, wanted):
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
        ranks = list(range(dist.get_world_size()))
        self.kolo_group = dist.new_group(ranks, backend="kolo")
        self.calls = {"kolo": self.by_group(self.kolo_group), "gloo": self.by_group(dist.group.WORLD)}
        if "commux" in wanted:
            import commux
            commux.register()
            self.calls["commux"] = self.by_group(dist.new_group(ranks, backend="ucx"))
        if "mpi4py" in wanted:
            from mpi4py import MPI
            self.calls["mpi4py"] = lambda tensor: MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, tensor.numpy())
        if "no-op" in wanted:
            import torch.testing._internal.distributed.fake_pg  # noqa: F401
            self.calls["no-op"] = self.by_group(dist.new_group(ranks, backend="fake"))

    @staticmethod
    def by_group(group):
        return lambda tensor: dist.all_reduce(tensor, group=group)

    def slowest(self, samples):
        """Each sample as the rank took that needed longest."""
        times = torch.tensor(samples, dtype=torch.float64)
        dist.all_reduce(times, dist.ReduceOp.MAX, group=self.kolo_group)
        return times.tolist()

    def check(self, name, tensor):
        tensor.fill_(dist.get_rank() + 1)
        self.calls[name](tensor)
        size = dist.get_world_size()
        if name != "no-op" and not bool((tensor == size * (size + 1) / 2).all()):
            sys.exit(f"{name}: a wrong sum of {tensor.numel()} elements: {tensor[:4].tolist()} …")

    def sample(self, name, tensor, calls):
        """Seconds a call."""
        call = self.calls[name]
        dist.barrier(group=self.kolo_group)
        begun = time.perf_counter()
        for _ in range(calls):
            call(tensor)
        return (time.perf_counter() - begun) / calls


def row(calls, size, repetitions):
    tensor = torch.zeros(size // 4)
    aggregated = max(1, min(MOST_AGGREGATED, AGGREGATED_BYTES // size))
    names = list(calls.calls)
    samples = {name: [] for name in names}
    for name in names:
        calls.check(name, tensor)
    tensor.zero_()
    for repetition in range(WARM_UP + repetitions):
        turn = repetition % len(names)
        for name in names[turn:] + names[:turn]:
            seconds = calls.sample(name, tensor, aggregated)
            if repetition >= WARM_UP:
                samples[name].append(seconds)
    return {"bytes": size, "calls": aggregated,
            "seconds": {name: calls.slowest(times) for name, times in samples.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--sizes", required=True, help="bytes, with commas")
    parser.add_argument("--repetitions", type=int, required=True)
    parser.add_argument("--libraries", default="", help="beside kolo and gloo, with commas")
    options = parser.parse_args()
    torch.set_num_threads(1)
    calls = Calls(options.libraries.split(","))
    rows = [row(calls, int(size), options.repetitions) for size in options.sizes.split(",")]
    if dist.get_rank() == 0:
        print(json.dumps(rows), flush=True)
    dist.destroy_process_group()


main()

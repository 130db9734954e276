"""Ways to meet: an explicit store (tcp, file, hash, prefix), mp.spawn, what has started the process. A rank
of a job that backend_test starts."""
import os
import pathlib
import sys

import torch
import torch.distributed as dist


def check(size):
    rank = dist.get_rank()
    assert dist.get_world_size() == size
    dist.all_reduce(tensor := torch.tensor([rank + 1.0]))
    assert tensor.item() == size * (size + 1) / 2, tensor
    dist.destroy_process_group()
    print(f"rank {rank} of {size} is done", flush=True)


def by_store(kind, folder):
    rank, size = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
    store = {
        "tcp": lambda: dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, rank == 0),
        "file": lambda: dist.FileStore(str(pathlib.Path(folder) / "store"), size),
        "prefix": lambda: dist.PrefixStore("mine", dist.FileStore(str(pathlib.Path(folder) / "prefixed"), size)),
        "hash": dist.HashStore,
    }[kind]()
    dist.init_process_group("kolo", store=store, rank=rank, world_size=size)
    check(size)


def spawned(rank, size, place):
    dist.init_process_group("kolo", init_method=place, rank=rank, world_size=size)
    check(size)


def after_torch(backend):
    """A program that keeps torch's store, which so has MASTER_PORT on rank 0 while kolo's ranks meet."""
    dist.init_process_group(backend)
    kept = dist.distributed_c10d._get_default_store()
    dist.destroy_process_group()
    import kolo.torch as hvd
    for _ in range(2):
        hvd.init()
        total = hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum)
        assert total.item() == hvd.size() * (hvd.size() + 1) / 2, total
        hvd.shutdown()
    print(f"rank {os.environ['RANK']} is done beside {type(kept).__name__}", flush=True)


def main():
    way, *arguments = sys.argv[1:]
    if way == "spawn":
        torch.multiprocessing.spawn(spawned, args=(3, f"file://{arguments[0]}/spawned"), nprocs=3)
    elif way == "after_torch":
        after_torch(arguments[0])
    elif way == "launcher":
        import kolo.c10d  # noqa: F401
        for _ in range(2):
            dist.init_process_group("kolo", init_method="kolo://")
            check(int(arguments[0]))
    else:
        for kind in arguments[1:]:
            by_store(kind, arguments[0])


if __name__ == "__main__":
    main()

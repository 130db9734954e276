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


def main():
    way, *arguments = sys.argv[1:]
    if way == "spawn":
        torch.multiprocessing.spawn(spawned, args=(3, f"file://{arguments[0]}/spawned"), nprocs=3)
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

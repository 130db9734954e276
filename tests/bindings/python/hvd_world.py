"""kolo.torch's world: start, queries, process sets, objects, barrier, join. A rank of a job."""
import json
import os
import pathlib
import sys
import tempfile

import hvd_rank
import kolo.torch as hvd
import torch
from hvd_rank import data, everyone, expect, mine, raises, sets


def check_queries():
    assert hvd.rank() == int(os.environ["RANK"]) and hvd.size() == int(os.environ["WORLD_SIZE"])
    assert hvd.local_rank() == hvd.rank() and hvd.local_size() == hvd.size()
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1) and hvd.is_homogeneous()
    assert not hvd.gloo_built() and not hvd.gloo_enabled() and not hvd.mpi_enabled()
    assert not hvd.ddl_built() and not hvd.ccl_built() and not hvd.rocm_built() and not hvd.mpi_threads_supported()
    assert {type(built()) for built in (hvd.mpi_built, hvd.nccl_built, hvd.cuda_built)} == {bool}


def check_timeline():
    raises(hvd.KoloError, hvd.stop_timeline, "keeps no timeline")
    raises(NotImplementedError, lambda: hvd.start_timeline("t.json", mark_cycles=True), "mark_cycles")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "t%r.json")
        for names in (["first", "second"], ["third"]):
            hvd.start_timeline(str(path))
            raises(hvd.KoloError, lambda: hvd.start_timeline("another.json"), "keeps a timeline already")
            for name in names:
                hvd.allreduce(torch.ones(3), name=name)
            hvd.stop_timeline()
            hvd.allreduce(torch.ones(3), name="outside")
            events = json.loads(pathlib.Path(folder, f"t{hvd.rank()}.json").read_text())
            found = {event["args"]["tensor"] for event in events if event.get("cat") == "tensor"}
            assert found == set(names), found
            assert events[-1]["name"] == "kolo_end", events[-1]
        hvd.barrier()


class Ranks(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.tensor([index, hvd.rank(), hvd.size()])


def check_forked_processes():
    """Workers of a DataLoader are forked; they know their rank, and end without harm."""
    loader = torch.utils.data.DataLoader(Ranks(), batch_size=3, num_workers=2, multiprocessing_context="fork")
    for number, batch in enumerate(loader):
        assert batch.tolist() == [[3 * number + place, hvd.rank(), hvd.size()] for place in range(3)], batch
        hvd.barrier()
    child = os.fork()
    if child == 0:
        raises(RuntimeError, lambda: hvd.allreduce(torch.ones(1)), "forked")
        sys.exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    expect(hvd.allreduce(torch.ones(2)), torch.ones(2))


def check_starting_again():
    rank, size = hvd.rank(), hvd.size()
    hvd.init()  # has no effect
    for _ in range(2):
        hvd.shutdown()
        assert not hvd.is_initialized()
        raises(ValueError, hvd.rank, "init")
        raises(RuntimeError, lambda: hvd.allreduce(torch.ones(1)), "init")
        if size > 1:
            assert sets["even"].process_set_id is None and sets["even"].size() is None
        halves = [hvd.ProcessSet(range(size // 2 + 1)), [size - 1]] if size > 2 else [hvd.ProcessSet([0])]
        hvd.init(process_sets=halves if size > 1 else None)
        assert hvd.is_initialized() and (hvd.rank(), hvd.size()) == (rank, size)
        assert hvd.global_process_set.ranks == list(range(size))
        if size > 1:
            assert halves[0].process_set_id == 1
        if halves[0].included():
            expect(hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=halves[0]),
                   torch.full((2,), float(len(halves[0].ranks))))
        expect(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full((2,), float(size)))
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
    hvd_rank.make_sets()
    raises(ValueError, lambda: hvd.init(process_sets=[[0]]), "already")
    raises(ValueError, lambda: hvd.init(comm=[0, 1]), "mpi4py", "process_sets")


def check_process_sets():
    size, rank = hvd.size(), hvd.rank()
    assert hvd.global_process_set.size() == size and hvd.global_process_set.rank() == rank
    assert hvd.global_process_set.included() and "process_set_id=0" in str(hvd.global_process_set)
    assert mine().included() and mine().rank() == mine().ranks.index(rank)
    unknown = hvd.ProcessSet([0])
    assert unknown.size() is None and unknown.rank() is None and unknown.included() is None
    raises(ValueError, lambda: hvd.allreduce(torch.ones(1), process_set=unknown), "add_process_set")
    raises(ValueError, lambda: hvd.ProcessSet(["a"]), "integers")
    raises(ValueError, lambda: hvd.ProcessSet(5), "list")
    raises(ValueError, lambda: hvd.add_process_set([0, size]), size)
    raises(ValueError, lambda: hvd.add_process_set(range(size)))
    assert not hvd.remove_process_set(unknown) and not hvd.remove_process_set(hvd.global_process_set)
    if size > 2:
        pair = hvd.add_process_set([1, 0])
        assert pair.ranks == [0, 1] and pair.included() == (rank < 2)
        if rank < 2:
            expect(hvd.allgather(torch.tensor([rank]), process_set=pair), torch.tensor([0, 1]))
        else:
            raises(ValueError, pair.rank, "rank 2")
        assert hvd.remove_process_set(pair) and pair.process_set_id is None
        assert not hvd.remove_process_set(pair)


def check_objects():
    size, rank = hvd.size(), hvd.rank()
    for root in range(size):
        mine_ = {"rank": rank, "rows": ["x" * rank, (rank, None)], "tensor": torch.full((2,), float(rank))}
        got = hvd.broadcast_object(mine_, root_rank=root, name="an object")
        assert got["rank"] == root and got["rows"] == ["x" * root, (root, None)], got
        expect(got["tensor"], torch.full((2,), float(root)))
    assert hvd.broadcast_object(rank) == 0
    assert hvd.allgather_object("y" * rank) == ["y" * other for other in range(size)]
    ranks = mine().ranks
    assert hvd.broadcast_object(rank, root_rank=ranks[-1], process_set=mine()) == ranks[-1]
    assert hvd.allgather_object(rank, process_set=mine()) == ranks
    unpicklable = (lambda: 1) if rank == size - 1 else 1
    raises(RuntimeError, lambda: hvd.allgather_object(unpicklable), f"rank {size - 1}", "pickled")
    raises(RuntimeError, lambda: hvd.broadcast_object(unpicklable, size - 1), f"rank {size - 1}", "pickled")


def check_barriers():
    for _ in range(10):
        hvd.barrier()
    hvd.barrier(process_set=mine())
    handles = [hvd.allreduce_async(data((4,), seed=seed), op=hvd.Sum) for seed in range(5)]
    hvd.barrier()
    for seed, handle in enumerate(handles):
        expect(hvd.synchronize(handle), everyone((4,), seed=seed).sum(0))
    if hvd.size() > 1 and 1 in mine().ranks:
        hvd.barrier(process_set=sets["odd"])
    if hvd.rank() == 0 and hvd.size() > 1:
        raises(RuntimeError, lambda: hvd.barrier(process_set=sets["odd"]))


def check_join():
    """The ranks end one after the other, the highest first."""
    size, rank = hvd.size(), hvd.rank()
    for step in range(size - rank):
        there = size - step
        average = hvd.allreduce(torch.full((3,), float(rank)), name=f"step {step}")
        expect(average, torch.full((3,), sum(range(there)) / there))
        total = hvd.allreduce(torch.ones(3), op=hvd.Sum, name=f"sum {step}")
        expect(total, torch.full((3,), float(there)))
        hvd.synchronize(hvd.allreduce_async(torch.ones(1), name=f"order {step}"))
    assert hvd.join() == 0
    for _ in range(rank + 1):  # calls without a name, of which each rank makes another number
        hvd.allreduce(torch.ones(1))
    hvd.join()
    expect(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full((2,), float(size)))


def check_join_and_what_it_cannot_serve():
    if hvd.size() == 1:
        return
    if hvd.rank() != 1:
        raises(RuntimeError, lambda: hvd.allgather(torch.ones(2), name="gathered"), "join")
        raises(RuntimeError, lambda: hvd.broadcast(torch.ones(2), 0, name="sent"), "join")
    last = hvd.join()
    assert last != 1 or hvd.size() == 1, last
    expect(hvd.allreduce(torch.ones(2)), torch.ones(2))

"""A rank that fails, is interrupted, or forks. Its job is started by failures_test."""
import contextlib
import ctypes
import functools
import operator
import os
import pickle
import re
import signal
import sys
import threading
import time

import kolo.c10d
import kolo.torch as hvd
import torch
import torch.distributed as dist


def killed(call):
    """Rank 1 kills itself in the midst; each other rank says when it knew."""
    for step in range(1000):
        if step == 5 and dist.get_rank() == 1:
            print(f"killed at {time.time()}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            call()
        except dist.DistBackendError as error:
            print(f"rank {dist.get_rank()} knew at {time.time()}: {error.code}: {error}", flush=True)
            os._exit(3)


def killed_in_a_collective():
    killed(lambda: dist.all_reduce(torch.ones(1000)))


def killed_in_backward():
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
    killed(lambda: net(torch.ones(2, 3)).sum().backward())


def ended():
    """A backward whose calls come after the end: those of DistributedDataParallel, and of kolo.torch."""
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
    loss = net(torch.ones(2, 3)).sum()
    dist.destroy_process_group()
    expect_shutdown(loss)
    hvd.init()
    loss = hvd.allreduce(torch.ones(3, requires_grad=True)).sum()
    hvd.shutdown()
    expect_shutdown(loss)


def expect_shutdown(loss):
    try:
        loss.backward()
    except kolo.c10d.KoloError as error:
        copy = pickle.loads(pickle.dumps(error))
        assert error.code == "shutdown" and (copy.code, str(copy)) == (error.code, str(error)), (error.code, copy)
    else:
        raise AssertionError("no error")


def failing_compressor():
    """Rank 1's raises in one call after the other; the last ends the job's communication."""
    dist.destroy_process_group()
    hvd.init()

    class Failing(hvd.Compression.none):
        where = ""

        @classmethod
        def compress(cls, tensor):
            cls.fail("wire_type" if tensor.numel() == 1 else "compress")
            return tensor, None

        @classmethod
        def decompress(cls, tensor, ctx):
            cls.fail("decompress")
            return tensor

        @classmethod
        def fail(cls, where):
            if where == cls.where and hvd.rank() == 1:
                raise KeyError(f"mistake in {where}")

    model = torch.nn.Linear(3, 2)
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters(),
                                         compression=Failing)
    for where, code in (("wire_type", "invalid argument"), ("compress", "invalid argument"), ("decompress", "aborted")):
        Failing.where = where
        try:
            while True:  # rank 0 may have ended its step when rank 1's decompress() raises
                optimizer.zero_grad()
                model(torch.ones(2, 3)).sum().backward()
                optimizer.step()
        except hvd.KoloError as error:
            text = f"rank {hvd.rank()}: {error.code}: {error}"
            assert error.code == code, text
            assert re.search(rf"rank 1.*parameter 'optimizer0/\w+': {where}\(\) has failed: KeyError: 'mistake in {where}'$",
                             str(error)), text
            assert repr(error.__cause__) == (f"KeyError('mistake in {where}')" if hvd.rank() == 1 else "None"), text


def interrupted():
    """All ranks wait for a message that does not come."""
    try:
        print(f"rank {dist.get_rank()} waits", flush=True)
        dist.recv(torch.empty(1), (dist.get_rank() + 1) % dist.get_world_size())
    except KeyboardInterrupt:
        print(f"rank {dist.get_rank()} was interrupted", flush=True)
        raise


def interrupted_as_it_fails():
    """Ctrl-C comes when backward has failed, before Python has its exception."""
    dist.destroy_process_group()
    hvd.init()
    model = torch.nn.Linear(3, 2)
    kept = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
    loss = model(torch.ones(2, 3)).sum()
    hvd.shutdown()
    backward = functools.partial(torch.autograd.Variable._execution_engine.run_backward, (loss,),
                                 (torch.ones_like(loss),), False, False, (), allow_unreachable=True,
                                 accumulate_grad=True)
    call = operator.methodcaller("__call__")
    try:
        try:  # all in C: no code of Python between the two, which would see to the signal first
            list(map(call, (ctypes.pythonapi.PyErr_SetInterrupt, backward)))
        except kolo.c10d.KoloError:
            time.sleep(0)
    except KeyboardInterrupt:
        print(f"{type(kept).__name__} was interrupted", flush=True)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.tensor([float(index)])


def forked():
    """Workers of a DataLoader are forked while a group is there, and while a future has a thread of its own."""
    dist.all_reduce(torch.ones(100000), async_op=True).get_future().then(lambda future: None).wait()
    total = torch.zeros(1)
    for _ in range(2):
        for batch in torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2):
            dist.all_reduce(batch)
            total += batch.sum()
    assert total.item() == 2 * dist.get_world_size() * 63 * 64 / 2, total
    # A child that drops the group and ends as Python does.
    child = os.fork()
    if child == 0:
        dist.distributed_c10d._world.pg_map.clear()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {dist.get_rank() if dist.is_initialized() else os.environ['RANK']} is done", flush=True)


def left_alone():
    """Nobody waits for the last calls; some may fail as the other rank ends."""
    works = []
    with contextlib.suppress(kolo.c10d.KoloError):
        for _ in range(40):
            works.append(dist.all_reduce(torch.ones(100000), async_op=True))
    for work in works[::2]:
        work.get_future().then(lambda future: None)


def thread_left_alone():
    """A thread is in a call as the program ends."""
    threading.Thread(target=dist.recv, args=(torch.empty(1), 1 - dist.get_rank()), daemon=True).start()
    with contextlib.suppress(kolo.c10d.KoloError):
        dist.all_reduce(torch.ones(10))


dist.init_process_group("kolo", *sys.argv[2:])
{of.__name__: of for of in (killed_in_a_collective, killed_in_backward, ended, interrupted, interrupted_as_it_fails,
                            failing_compressor, forked, left_alone,
                            thread_left_alone)}[sys.argv[1]]()

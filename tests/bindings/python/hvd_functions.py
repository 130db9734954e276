"""Functions that horovod_test gives to run()."""
import kolo.torch as hvd
import torch


def total(values, factor=1):
    hvd.init()
    return hvd.rank(), hvd.allreduce(torch.tensor(values), op=hvd.Sum).mul(factor).tolist()


def fail():
    raise KeyError("the function's own")

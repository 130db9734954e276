"""Elastic training: when a rank is lost, the others go on in their own processes, and new ones join them.

::

    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0)

    @hvd.elastic.run
    def train(state):  # called anew in each world
        while state.epoch < epochs:
            for number, batch in enumerate(loader):
                step(batch)
                state.sampler.record_batch(number, batch_size)
                state.commit()
            state.epoch += 1
            state.sampler.set_epoch(state.epoch)

    train(state)

started by ``kolo-run -np 4 --min-np 2 --restarts 3 python train.py``.

What happens:

- A rank is lost: calls fail on the others, which make a world of those that are there. All go back to the last commit
  of its lowest rank, and the function is called again.
- Processes wait for the next world: ``commit()`` and ``check_host_updates()`` leave the function on all ranks. Nothing
  is undone, and new ranks get the state of the lowest one that has it.

Rules:

- A new process runs the program up to ``run`` by itself, in a world of one: ``rank()`` is 0 there. All ranks make their
  models and optimizers before it, by the same code, and what depends on ``rank()`` or ``size()`` within the function.
- Every DistributedOptimizer that was made before is in the next world, too. One that was made within the function is not,
  nor are process sets.
- Within the function let ``HorovodInternalError`` and ``HostsUpdatedInterrupt`` pass.
"""
from kolo.torch.elastic.job import run
from kolo.torch.elastic.sampler import ElasticSampler
from kolo.torch.elastic.state import HostsUpdatedInterrupt, ObjectState, State, TorchState

__all__ = ["ElasticSampler", "HostsUpdatedInterrupt", "ObjectState", "State", "TorchState", "run"]

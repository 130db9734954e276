"""A rank of an elastic job, from which a rank is lost. elastic_test starts it by kolo-run."""
import os
import signal
import sys
import time
import types

import kolo.torch as hvd
import torch
from kolo.torch.elastic import job

PROCESS = os.environ.get("KOLO_PROCESS", os.environ.get("RANK"))
SAMPLES, BATCH, EPOCHS_AFTER = 90, 4, 1
COMMIT_EVERY = 3
STEP = 0.01  # seconds of a step, so that a new process has a core to start on


def say(text):
    """In one write, so that lines of several processes do not mix."""
    os.write(1, f"process {PROCESS}: {text}\n".encode())


def end_this_process():
    say(f"killed at {time.time()}")
    os.kill(os.getpid(), signal.SIGKILL)


class Training:
    """Each sample has a weight, from which each step with it takes 1. A second optimizer has momenta."""

    def __init__(self):
        torch.manual_seed(int(PROCESS))  # rank 0's weights are what all begin with
        self.weights = torch.nn.Parameter(torch.zeros(SAMPLES))
        self.momenta = torch.nn.Parameter(torch.rand(5))
        self.sgd = hvd.DistributedOptimizer(torch.optim.SGD([self.weights], 1.0), [("weights", self.weights)],
                                            op=hvd.Sum)
        self.adam = hvd.DistributedOptimizer(torch.optim.Adam([self.momenta], 0.01), [("momenta", self.momenta)])
        self.model = torch.nn.ParameterDict({"weights": self.weights, "momenta": self.momenta})
        self.sampler = hvd.elastic.ElasticSampler(range(SAMPLES))
        self.loader = torch.utils.data.DataLoader(range(SAMPLES), batch_size=BATCH, sampler=self.sampler)
        self.state = hvd.elastic.TorchState(
            model=self.model, optimizer=self.sgd, adam=self.adam, sampler=self.sampler, steps=0, ends_after=None,
            trained=torch.zeros(SAMPLES), in_epoch=torch.zeros(SAMPLES), worlds=1, worlds_of_epoch=1, resets=0)
        self.state.register_reset_callbacks([self.count_resets])

    def count_resets(self):
        self.state.resets += 1
        self.state.worlds_of_epoch += 1

    def step(self, samples):
        state = self.state
        time.sleep(STEP)
        if PROCESS == "1" and state.steps == 7:  # the last commit is that of step 6
            end_this_process()
        self.sgd.zero_grad()
        self.adam.zero_grad()
        # The weights' gradients are reduced first, so some ranks may have stepped with them when the others fail.
        self.weights[samples].sum().backward()
        self.sgd.step()
        (self.momenta * (1 + state.steps % 3)).sum().backward()
        self.adam.step()
        everyone = hvd.allgather(samples)
        state.in_epoch.index_add_(0, everyone, torch.ones(len(everyone)))
        state.steps += 1

    def check_epoch(self):
        """Every sample was trained, and twice only what was dealt out twice, to give all ranks as many."""
        state = self.state
        assert state.in_epoch.min() == 1, f"never trained: {(state.in_epoch == 0).nonzero().flatten().tolist()}"
        twice = int(state.in_epoch.sum()) - SAMPLES
        assert twice <= 2 * state.worlds_of_epoch, f"{twice} samples too many in {state.worlds_of_epoch} worlds"

    def train(self, state):
        first = hvd.allreduce(torch.ones(1), op=hvd.Sum).item()
        assert first == hvd.size(), first
        say(f"world of {hvd.size()} at {time.time()}: rank {hvd.rank()}, step {state.steps}, reset {state.resets}")
        if state.resets > 0 and hvd.size() == 3 and state.ends_after is None:  # the new process is here
            state.ends_after = self.sampler.epoch + EPOCHS_AFTER
        while self.sampler.epoch != state.ends_after:
            for number, samples in enumerate(self.loader):
                self.step(samples)
                self.sampler.record_batch(number, BATCH)
                # Between two commits a new process is taken in, too, and nothing is undone.
                state.commit() if state.steps % COMMIT_EVERY == 0 else state.check_host_updates()
            self.check_epoch()
            state.trained += state.in_epoch
            state.in_epoch.zero_()
            state.worlds_of_epoch = 1
            self.sampler.set_epoch(self.sampler.epoch + 1)
            state.commit()

    def check(self):
        assert torch.equal(self.weights.detach(), -self.state.trained), "the weights are not what was trained"
        torch.manual_seed(0)
        momenta = torch.nn.Parameter(torch.rand(5))
        adam = torch.optim.Adam([momenta], 0.01)
        for step in range(self.state.steps):
            adam.zero_grad()
            (momenta * (1 + step % 3)).sum().backward()
            adam.step()
        assert torch.allclose(self.momenta, momenta), f"{self.momenta} instead of {momenta}"
        say(f"done: rank {hvd.rank()} of {hvd.size()}, {self.state.steps} steps, "
            f"{int(self.state.trained.sum())} samples, {self.state.resets} resets")


def training():
    all_of_it = Training()
    hvd.elastic.run(all_of_it.train)(all_of_it.state)
    all_of_it.check()


@hvd.elastic.run
def count(state, steps):
    """Each step appends a number. What no commit has seen is undone."""
    assert state.numbers == list(range(len(state.numbers))), state.numbers
    say(f"world of {hvd.size()}: begins at {len(state.numbers)}")
    while len(state.numbers) < steps:
        hvd.barrier()
        state.numbers.append(len(state.numbers))
        if len(state.numbers) % 5 == 0:
            state.commit()
        if PROCESS == "0" and len(state.numbers) == 12:
            end_this_process()
        if PROCESS == "1" and len(state.numbers) == 17:
            raise KeyError("a mistake of its own")
    return sum(state.numbers)


def counting():
    state = hvd.elastic.ObjectState(numbers=list(range(hvd.rank(), 0)))
    total = count(state, steps=20)
    say(f"done: rank {hvd.rank()} of {hvd.size()}, total {total}")
    lose_again_and_again(state)


def lose_again_and_again(state):
    """A loss that repeats among the same processes is raised at last."""
    calls = []

    @hvd.elastic.run
    def fail(state):
        calls.append(hvd.size())
        raise RuntimeError("a link is broken")

    job.extension = types.SimpleNamespace(**(vars(job.extension) | {"loss": lambda: "a link is broken"}))
    try:
        fail(state)
    except RuntimeError:
        say(f"gave up after {calls}")


if "KOLO_PROCESS" not in os.environ:  # no kolo-run
    torch.distributed.init_process_group("kolo")
hvd.init()
{"training": training, "counting": counting}[sys.argv[1]]()

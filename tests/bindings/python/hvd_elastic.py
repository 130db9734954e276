"""kolo.torch.elastic: states and the sampler where no rank is lost; elastic_test has the rest. 1 or more ranks."""
import warnings

import kolo.torch as hvd
import torch
from hvd_rank import expect, raises
from kolo.torch.elastic.job import Job


def linear(value):
    model = torch.nn.Linear(2, 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
    return model


def step(model, optimizer, value=1.0):
    optimizer.zero_grad()
    model(torch.full((1, 2), value)).sum().backward()
    optimizer.step()


def check_a_state_is_rank_0s_after_sync_and_the_committed_one_after_restore():
    model = linear(1.0 + hvd.rank())
    optimizer = torch.optim.SGD(model.parameters(), 0.5 * (1 + hvd.rank()), momentum=0.5)
    state = hvd.elastic.TorchState(model, optimizer, batch=20 + hvd.rank(), epoch=10 + hvd.rank())
    assert state.model is model and state.optimizer is optimizer
    state.sync()
    expect(model.weight.detach(), torch.ones(1, 2))
    assert (state.batch, state.epoch, optimizer.param_groups[0]["lr"]) == (20, 10, 0.5)

    step(model, optimizer)
    optimizer.param_groups[0]["lr"] = 7
    state.batch = 21
    state.restore()
    expect(model.weight.detach(), torch.ones(1, 2))
    assert (state.batch, optimizer.param_groups[0]["lr"]) == (20, 0.5)

    step(model, optimizer)
    state.batch = 22
    state.commit()
    committed = model.weight.detach().clone()
    state.restore()
    expect(model.weight.detach(), committed)
    assert state.batch == 22


def check_the_state_may_come_from_another_rank():
    """Where rank 0 is new, and ranks were lost while it got the state."""
    root = hvd.size() - 1
    model = linear(float(hvd.rank()))
    state = hvd.elastic.TorchState(model, value=hvd.rank())
    state._root = root
    Job(state)._share()
    assert state.value == root
    expect(model.weight.detach(), torch.full((1, 2), float(root)))

    class Own(hvd.elastic.State):
        def sync(self):
            raise AssertionError("gives rank 0's state")

    own = Own()
    own._root = 1
    raises(hvd.HorovodInternalError, Job(own)._share, "Rank 1 has it", "sync() of Own")


def check_a_saved_state_is_a_copy():
    model = linear(1.0)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    state = hvd.elastic.TorchState(model=model, adam=optimizer, rows=[[1]])
    step(model, optimizer)
    state.rows[0].append(2)
    state.save()
    results = []
    for _ in range(3):  # each from the same state, with moments that steps write to
        step(model, optimizer, 3.0)
        step(model, optimizer, -2.0)
        state.rows[0].append(3)
        results.append(model.weight.detach().clone())
        state.restore()
        assert state.rows == [[1, 2]], state.rows
    expect(results[1], results[0])
    expect(results[2], results[0])


def check_schedulers_know_the_restored_learning_rate():
    model = linear(1.0)
    plain = torch.optim.SGD(model.parameters(), 1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(plain, 0.5)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, scheduler=scheduler)
    rates = []
    for commits in (True, False, False, True, False):
        step(model, optimizer)
        scheduler.step()
        rates.append(optimizer.param_groups[0]["lr"])
        state.commit() if commits else state.restore()
    assert rates == [0.5, 0.25, 0.25, 0.25, 0.125], rates
    if hvd.rank() != 0:
        scheduler.step()
    state.sync()
    assert (optimizer.param_groups[0]["lr"], scheduler.last_epoch) == (0.25, 2), scheduler.state_dict()


def check_without_an_elastic_job_the_function_runs_once():
    calls = []
    state = hvd.elastic.ObjectState(value=hvd.rank())

    @hvd.elastic.run
    def train(state, *arguments, **options):
        calls.append((state.value, arguments, options))
        state.value = 5
        state.commit()
        state.value = 6
        if hvd.size() > 1:
            hvd.allreduce(torch.ones(1 + hvd.rank()), name="different sizes")
        return "trained"

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if hvd.size() > 1:
            raises(hvd.HorovodInternalError, lambda: train(state, 1, more=2), "different sizes")
        else:
            assert train(state, 1, more=2) == "trained"
    assert calls == [(0, (1,), {"more": 2})] and state.value == 6, (calls, state.value)
    texts = [str(each.message) for each in said]
    warned = hvd.rank() == 0 and hvd.size() > 1
    assert len(texts) == int(warned) and all("--min-np" in text for text in texts), texts


def check_reset_callbacks():
    calls = []
    state = hvd.elastic.ObjectState(value=1)
    state.register_reset_callbacks([lambda: calls.append(1), lambda: calls.append(2)])
    state.on_reset()
    assert calls == [1, 2]


def check_a_sampler_deals_out_what_no_rank_has_recorded():
    size, batch = hvd.size(), 2
    data = range(8 * size)
    sampler = hvd.elastic.ElasticSampler(data)
    loader = torch.utils.data.DataLoader(data, batch_size=batch, sampler=sampler)
    state = hvd.elastic.TorchState(sampler=sampler)
    state.sync()
    orders = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        orders.append(torch.cat(list(loader)).tolist())
        assert len(loader) == 4 and sampler.indices == orders[-1]
        for again in loader:  # what is not recorded comes again
            assert set(again.tolist()) <= set(orders[-1])
    everyone = hvd.allgather(torch.tensor(orders[1]))
    assert sorted(everyone.tolist()) == list(data) and orders[0] != orders[1]

    sampler.set_epoch(2)
    sampler.record_batch(0, batch)  # before a pass
    assert sampler.state_dict()["beyond"] == sorted(sampler.get_indices(0, batch)) and sampler.processed_num == batch
    seen = []
    for number, samples in enumerate(loader):
        if number == 2:  # recorded, and not committed
            sampler.record_batch(number, batch)
            break
        sampler.record_batch(number, batch)
        seen += samples.tolist()
        state.commit()
    state.restore()
    assert len(sampler) == 4
    raises(ValueError, lambda: sampler.record_batch(2, batch), f"rank {hvd.rank()} has 4 samples")
    rest = torch.cat(list(loader)).tolist()
    sampler.record_indices(rest[:2])  # the ranks learn of each other's
    state.commit()
    state.sync()
    last = torch.cat(list(loader)).tolist()
    assert sorted(hvd.allgather(torch.tensor(seen + rest[:2] + last)).tolist()) == list(data)
    sampler.set_epoch(3)
    assert len(sampler) == 8


def check_a_sampler_gives_all_ranks_as_many():
    size = hvd.size()
    sampler = hvd.elastic.ElasticSampler(range(2 * size + 1), shuffle=False)
    assert list(sampler) == [hvd.rank(), hvd.rank() + size, (2 * size if hvd.rank() == 0 else hvd.rank() - 1)]
    state = sampler.state_dict()
    sampler.record_indices(range(2 * size))
    assert sampler.state_dict() != state
    sampler.exchange()
    sampler.reset()
    assert list(sampler) == [2 * size] * 1, list(sampler)  # less than a sample a rank
    assert sampler.state_dict() == {"epoch": 0, "first": 2 * size, "beyond": []}
    assert sampler.processed_num == 2 * size
    sampler.load_state_dict(state)
    assert len(list(sampler)) == 3


def check_an_optimizer_is_of_one_world():
    model = linear(1.0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
    step(model, optimizer)
    optimizer.leave_world()
    for call in (optimizer.step, optimizer.synchronize, optimizer.zero_grad):
        raises(ValueError, call, "its world has ended")
    optimizer.enter_world()
    step(model, optimizer)

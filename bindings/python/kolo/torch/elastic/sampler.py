"""ElasticSampler: a rank's share of the rest of an epoch, for worlds whose size changes within an epoch."""
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

import torch

from kolo._library import extension
from kolo.torch.state import allgather_object

__all__ = ["ElasticSampler"]


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Deals the samples of an epoch that are not recorded yet out to the ranks.

    - ``record_batch()`` or ``record_indices()`` after each step. A commit of a ``TorchState`` with this sampler tells all
      ranks what each has recorded, so a lost rank takes nothing of it along.
    - ``set_epoch()`` at the end of an epoch, not at its beginning: it forgets what is recorded.
    - All ranks have equally many samples: some come twice, where the number of ranks does not divide the rest.

    Attributes:
        epoch: the present epoch.
        indices: this rank's share.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, in an order of its own if ``shuffle``."""
        self.load_state_dict({"epoch": epoch, "first": 0, "beyond": []})

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Records batch number ``batch_idx`` of this rank's share: a step has been made with it.

        ValueError for a batch beyond the share, which begins at batch 0 in each world.
        """
        samples = self.get_indices(batch_idx, batch_size)
        if not samples:
            raise ValueError(f"record_batch({batch_idx}, {batch_size}): rank {self.rank} has {len(self)} samples now, fewer "
                             "than the batches before this one; batches are counted from 0 in each pass over the loader")
        self.record_indices(samples)

    def record_indices(self, indices: Iterable[int]) -> None:
        """Records samples of this rank."""
        self._own.update(indices)

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """The samples of a batch of this rank's share."""
        return self.indices[batch_idx * batch_size:(batch_idx + 1) * batch_size]

    @property
    def processed_num(self) -> int:
        """Number of samples of the epoch that are recorded, as far as this rank knows."""
        return self._first + len(self._beyond | self._own)

    def state_dict(self) -> dict[str, Any]:
        """What is recorded: the first samples of the epoch's order, and those beyond them."""
        return {"epoch": self.epoch, "first": self._first, "beyond": sorted(self._beyond | self._own)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes what is recorded, and deals out the rest to the ranks that are there."""
        self.epoch: int = state_dict["epoch"]
        self._order = self._ordered()
        self._first: int = state_dict["first"]
        self._beyond = set(state_dict["beyond"])
        self._own: set[int] = set()  # recorded here, and not yet known to the other ranks
        self._pass_over()
        self.reset()

    def exchange(self) -> None:
        """All ranks learn what each has recorded. Collective; a commit calls it."""
        self._beyond.update(*allgather_object(sorted(self._own)))
        self._own.clear()
        self._pass_over()

    def reset(self) -> None:
        """Deals out what no rank has recorded, as far as all know, to the ranks that are there."""
        self.num_replicas: int = extension.size()
        self.rank: int = extension.rank()
        self.remaining_indices = [each for each in self._order[self._first:] if each not in self._beyond]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        everyone = itertools.islice(itertools.cycle(self.remaining_indices), self.total_size)
        self.indices = list(everyone)[self.rank::self.num_replicas]

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples

    def _ordered(self) -> list[int]:
        number = len(self.dataset)
        if not self.shuffle:
            return list(range(number))
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        return torch.randperm(number, generator=generator).tolist()

    def _pass_over(self) -> None:
        """Counts samples to the first ones where none is missing before them, so that a commit copies few."""
        while self._first < len(self._order) and self._order[self._first] in self._beyond:
            self._beyond.remove(self._order[self._first])
            self._first += 1
